"""Vision models with random weights, of two layers and pictures of 28 pixels."""

import json

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def save_encoder(folder, *, kind="dinov2", seed=0):
    """Save a model as `transformers` does, with the preprocessing that the hub has beside it."""
    import torch
    import transformers

    torch.manual_seed(seed)
    text = {"num_hidden_layers": 1, "vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2}
    text |= {"hidden_size": 16, "num_attention_heads": 2}
    match kind:
        case "dinov2":
            model = transformers.Dinov2Model(transformers.Dinov2Config(**SIZES))
        case "dino":  # published without a pooler
            config = transformers.ViTConfig(**SIZES)
            model = transformers.ViTModel(config, add_pooling_layer=False)
        case "siglip":  # published with a model of text
            config = transformers.SiglipConfig(vision_config=SIZES, text_config=text)
            model = transformers.SiglipModel(config)
    model.save_pretrained(folder)
    preprocessing = {
        "image_processor_type": "BitImageProcessor" if kind == "dinov2" else "ViTImageProcessor",
        "size": {"height": 28, "width": 28},
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.3, 0.2, 0.1],
    }
    if kind == "dinov2":
        preprocessing["size"] = {"shortest_edge": 32}
        preprocessing |= {"do_center_crop": True, "crop_size": {"height": 28, "width": 28}}
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessing))
    return folder
