"""Gymnasium environments, one or several, with rewards learned from people's answers."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, SupportsFloat, final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode

from preferl.envs.checks import one_number, require_info
from preferl.envs.factory import playing_rate
from preferl.errors import ConfigError
from preferl.feedback.protocols import PairSampler, Teacher
from preferl.online.wrappers.feedback_config import FeedbackConfig, settings_of
from preferl.online.wrappers.feedback_controls import (
    FeedbackControls,
    hide_return,
    require_kind,
    with_rows,
)
from preferl.online.wrappers.feedback_core import FeedbackCore
from preferl.online.wrappers.recording import require_recordable, zeros_of
from preferl.online.wrappers.reward_computer import Rewards, Transform, space_after
from preferl.shapes import Array, BoolArray, map_observations
from preferl.store.feedback import StoredFeedback
from preferl.store.rendering.frames import spec_for
from preferl.store.store import Store
from preferl.training.publish import newest_reward

SERVICE: Final = "an option of the reward service: `preferl reward serve --help` lists them"
LOGGING: Final = 'the standard library: `logging.getLogger("preferl")`'
GONE: Final = {
    "reward_predictor_network": "the model is " + SERVICE + "; `--model cnn` is for pictures",
    "train_reward": "the reward is fitted by `preferl reward serve`, a program of its own",
    "mp_context": "nothing: programs meet in the store, and no process is started here",
    "prefs_dir": "`log_dir`: the store in it is used again, whoever filled it",
    "max_prefs_in_db": "nothing: answers are never thrown away",
    "n_initial_training_steps": "`--initial-epochs`, " + SERVICE,
    "n_initial_prefs": "`--min-answers`, " + SERVICE,
    "reward_predictor_ckpt_interval": "nothing: every version is on disk before it is used",
    "reward_predictor_refresh_interval": "`refresh_every`, in steps, or `refresh()`",
    "validation_interval": "nothing: every version is validated on held-out answers",
    "reward_database_refresh_interval": "`--min-new-answers`, " + SERVICE,
    "zoom_ratio": "nothing: clips are videos, and the page fits them to the screen",
    "channels": "nothing: pictures are recognised, or made by the project's `frames`",
    "env_wrapper_log_level": LOGGING,
    "reward_predictor_log_level": LOGGING,
    "pref_interface_log_level": LOGGING,
    "save_prefs": "`save()`, for queries; answers are on disk before they are acknowledged",
    "save_reward_predictor": "nothing: every version is on disk before it is used",
    "start_segment_collection": "`resume_collecting()`",
    "stop_segment_collection": "`pause_collecting()`",
    "collecting_segments": "`pause_collecting()` and `resume_collecting()`",
    "switch_to_predicted_reward": "`switch_to_learned_reward()`",
    "using_reward_from_predictor": '`reward_source == "learned"`',
    "force_return_true_reward": '`reward_source == "environment"`',
    "last_true_reward": '`info["true_reward"]` of each step',
    "segments_collected": "`counts`, of queries instead of segments",
    "pref_db_size": "the annotation page's overview, or `preferl annotate report`",
    "reward_training_steps": "`reward_version`, which counts fits instead of passes",
    "reward_predictor": "`learned_reward`",
}
"""Arguments and members of the old wrapper that do not exist here, and what replaces them."""


@final
class HumanPreferencesEnvWrapper(
    FeedbackControls, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs
):
    """`FeedbackVecEnv` for one environment, with a store and rewards in one folder.

    It replaces the wrapper of the same name in learning-from-human-preferences.
    `docs/migrate/drlhp.md` lists what replaces each of its arguments. The wrapper does not start
    the programs that show clips and fit rewards: see `preferl annotate serve` and `preferl reward
    serve`.

    Args:
        env: any environment with arrays or a dictionary of them.
        log_dir: folder of the store and, in `rewards`, of published rewards; made if absent. If
            None, no folder is made: queries go to `feedback` only, and rewards come from `rewards`
            only.
        project: name of the project in the store; made if absent.
        feedback: where queries go, instead of the store in `log_dir`.
        rewards: where rewards come from, instead of `log_dir/rewards`.
        collect_prefs: whether to ask anything.
        pretrained_reward_predictor_dir: a saved reward, or a folder of published ones, of which the
            latest is taken. The wrapper keeps this reward and reads none from `log_dir/rewards`.
        synthetic_preferences: see `FeedbackVecEnv`.
        synthetic_prefs: another name of `synthetic_preferences`.
        obs_transform_func: `transform` of `FeedbackVecEnv`.
        transformed_space: see `FeedbackVecEnv`.
        max_pref_interface_segs: the config's `buffer_steps`, counted in segments.
        config: how experience is collected, and which rewards come before the first learned one.
            Without a config, `refresh_every` is 2,048 steps unless it is given.
        sampler: chooses pairs instead of the config's `sampler`.
        **settings: fields of `FeedbackConfig`.

    Raises:
        ConfigError: settings are out of range or do not go together, `env` is not one environment,
            a script's answers have no folder, or an argument of the old wrapper has no meaning
            here. The message then names what replaces the argument.
        AttributeError: a method or attribute of the old wrapper is not here; the message names what
            replaces it.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        log_dir: Path | str | None = None,
        project: str = "drlhp",
        feedback: StoredFeedback | None = None,
        rewards: Rewards = None,
        collect_prefs: bool = True,
        pretrained_reward_predictor_dir: Path | str | None = None,
        synthetic_preferences: bool | Teacher | None = None,
        synthetic_prefs: bool | None = None,
        obs_transform_func: Transform | None = None,
        transformed_space: spaces.Space[Any] | None = None,
        max_pref_interface_segs: int | None = None,
        config: FeedbackConfig | None = None,
        sampler: PairSampler | str | None = None,
        **settings: Any,
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            log_dir=log_dir,
            project=project,
            feedback=feedback,
            rewards=rewards,
            collect_prefs=collect_prefs,
            pretrained_reward_predictor_dir=pretrained_reward_predictor_dir,
            synthetic_preferences=synthetic_preferences,
            synthetic_prefs=synthetic_prefs,
            obs_transform_func=obs_transform_func,
            transformed_space=transformed_space,
            max_pref_interface_segs=max_pref_interface_segs,
            config=config,
            sampler=sampler,
            **settings,
        )
        require_kind(env, self)
        gymnasium.Wrapper.__init__(self, env)
        for name in settings.keys() & GONE.keys():
            raise ConfigError(f"{name}: not an argument any more. In its place: {GONE[name]}.")
        if synthetic_preferences is not None and synthetic_prefs is not None:
            raise ConfigError(
                "synthetic_preferences and synthetic_prefs: expected one of the two names, got "
                "both."
            )
        config = settings_of(config, ({} if config else {"refresh_every": 2_048}) | settings)
        if max_pref_interface_segs is not None:
            config = replace(config, buffer_steps=max_pref_interface_segs * config.segment_length)
        self._store: Store | None = None
        space = space_after(env.observation_space, obs_transform_func, transformed_space)
        require_recordable(space, env.action_space)
        with ExitStack() as opened:  # an error below closes the store
            scripted = synthetic_preferences or synthetic_prefs
            if (collect_prefs and feedback is None and (log_dir is None)) and scripted:
                raise ConfigError(
                    "log_dir: expected a folder for queries and answers, got none. Pass it: "
                    'log_dir="drlhp_logs".'
                )
            if collect_prefs and feedback is None and log_dir is not None:
                self._store = opened.enter_context(Store.open(log_dir))
                slug = _project(self._store, project, env, space, config)
                feedback = StoredFeedback(self._store, slug)
            pretrained = None
            if pretrained_reward_predictor_dir is not None:
                pretrained = newest_reward(pretrained_reward_predictor_dir)
                rewards = None
            elif rewards is None and log_dir is not None:
                rewards = Path(log_dir) / "rewards"
            self.core = FeedbackCore(
                env.observation_space,
                env.action_space,
                1,
                feedback=feedback if collect_prefs else None,
                rewards=rewards,
                config=config,
                sampler=sampler,
                synthetic_preferences=scripted or False,
                transform=obs_transform_func,
                transformed_space=transformed_space,
            )
            if pretrained is not None:
                self.core.computer.set_reward(pretrained.reward, version=pretrained.number)
            opened.pop_all()
        self._warn_if_unrewarded()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; an episode that still runs is cut off."""
        observation, info = self.env.reset(seed=seed, options=options)
        require_info("info of `reset`", info)
        self._begin(_batch(observation), [info])
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Return the step's outcome with the learned reward.

        Raises:
            ConfigError: the environment was never reset, or its `step` does not return one number
                as the reward, a truth value for each end, and a dictionary.
        """
        version = self.core.computer.active_version
        self.core.begin_step(np.asarray(action)[None])
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = one_number("reward of `step`", reward)
        terminated = bool(one_number("`terminated` of `step`", terminated))
        truncated = bool(one_number("`truncated` of `step`", truncated))
        require_info("info of `step`", info)
        (given,) = self.core.finish_step(
            _batch(observation),
            np.array([reward]),
            np.array([terminated]),
            np.array([truncated]),
            states=self._states([info]),
        )
        info = dict(info)
        self._complete_infos([info], [reward], version, [0] if terminated or truncated else [])
        return observation, float(given), terminated, truncated, info

    def __getattr__(self, name: str) -> NoReturn:
        """Raise `AttributeError`, which names what replaces a member of the old wrapper."""
        problem = f"{type(self).__name__!r} object has no attribute {name!r}"
        replacement = f". In its place: {GONE[name]}." if name in GONE else ""
        raise AttributeError(problem + replacement, name=name, obj=self)

    def close(self, seconds: float = 10.0) -> None:
        """Save the queries that are due, for `seconds` at most, and close the environment."""
        stores = [] if self._store is None else [self._store.close]
        self.core.close(seconds, super().close, *stores)


def _batch(observation: Any) -> Any:
    return map_observations(lambda array: np.asarray(array)[None], observation)


def _project(
    store: Store,
    name: str,
    env: gymnasium.Env[Any, Any],
    space: spaces.Space[Any],
    config: FeedbackConfig,
) -> str:
    """Create a project if it is absent. Its `frames` draw observations of `space`."""
    if name not in {project.slug for project in store.projects.all()}:
        try:
            spec = env.unwrapped.spec
            env_id = None if spec is None else spec.id
            frames = spec_for(zeros_of(space, (1,)), env_id, recorded=config.states)
        except ConfigError:  # people can choose later, with `store.projects.update`
            frames = None
        store.projects.create(name, fps=playing_rate(env.metadata), frames=frames)
    return name


@final
class FeedbackVectorEnv(
    FeedbackControls,
    gymnasium.vector.VectorWrapper,  # generic only since gymnasium 1.4
    RecordConstructorArgs,
):
    """`FeedbackVecEnv` for gymnasium's vector environments, with the same arguments.

    Episodes may begin in the step that ends another one, in the step after it, or by `reset` with a
    mask. A step that only begins an episode is not recorded. Infos have arrays `true_reward`
    (unless hidden) and `reward_version`. Their masks `_true_reward` and `_reward_version` are false
    for steps that only began an episode. Infos have `learned_return` where an episode ended.

    Attributes:
        autoreset_mode: when episodes begin, see gymnasium's own vector environments.

    Raises:
        ConfigError: settings are out of range or do not go together, the environments are of
            another library, or their metadata does not tell the autoreset mode.
    """

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv[Any, Any, Any],
        feedback: StoredFeedback | None = None,
        rewards: Rewards = None,
        config: FeedbackConfig | None = None,
        **options: Any,
    ) -> None:
        chosen = {"feedback": feedback, "rewards": rewards, "config": config}
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **chosen, **options)
        require_kind(env, self)
        gymnasium.vector.VectorWrapper.__init__(self, env)
        self.autoreset_mode = mode = (env.metadata or {}).get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ConfigError(
                'metadata["autoreset_mode"]: expected an AutoresetMode, as make_vec gives, got '
                f"{mode}."
            )
        self.core = FeedbackCore(
            env.single_observation_space,
            env.single_action_space,
            env.num_envs,
            feedback=feedback,
            rewards=rewards,
            config=config,
            **options,
        )
        self._warn_if_unrewarded()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes everywhere, or where `options["reset_mask"]` is true."""
        mask = None if options is None else options.get("reset_mask")
        observations, infos = self.env.reset(seed=seed, options=options)
        self._begin(observations, _with_states(infos), mask)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Return the step's outcome with the learned rewards, `[V]`.

        Raises:
            ConfigError: the environments were never reset.
        """
        began = self.core.recording.idle.copy()
        version = self.core.computer.active_version
        self.core.begin_step(np.asarray(actions))
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        rewards = self._one_each("rewards", rewards)
        terminated = self._one_each("`terminated`", terminated).astype(bool)
        truncated = self._one_each("`truncated`", truncated).astype(bool)
        over = (terminated | truncated) & ~began
        same = self.autoreset_mode == AutoresetMode.SAME_STEP and over.any()
        recorded = self.core.config.states
        states = self._states(_with_states(infos)) if recorded else None
        last = observations
        if same:
            finals = map_observations(lambda *rows: np.stack(rows), *infos["final_obs"][over])
            last = with_rows(observations, over.nonzero()[0], finals)
        given = self.core.finish_step(last, rewards, terminated, truncated, states=states)
        self._complete_arrays(infos, rewards, version, ~began, over)
        if same:
            self.core.reset(observations, over, states=states)
        elif self.autoreset_mode == AutoresetMode.NEXT_STEP and began.any():
            self.core.reset(observations, began, states=states)
        return observations, given, terminated, truncated, infos

    def close(self, seconds: float = 10.0, **kwargs: Any) -> None:
        """Save the queries that are due, for `seconds` at most, and close the environments."""
        self.core.close(seconds, partial(super().close, **kwargs))

    def _one_each(self, what: str, values: Any) -> Array:
        """Check that `step` gave one number for each environment; return them as `[V]`."""
        array = np.asarray(values)
        if array.size != self.num_envs or array.dtype.kind not in "biuf":
            raise ConfigError(
                f"{what} of `step`: expected a number for each of {self.num_envs} environments, "
                f"got {array.dtype} of shape {array.shape}."
            )
        return array.reshape(self.num_envs)

    def _complete_arrays(
        self, infos: dict[str, Any], rewards: Array, version: int, real: BoolArray, over: BoolArray
    ) -> None:
        hide = self.core.config.hide_true_reward
        known = {"reward_version": (np.full(len(real), version), real)}
        if not hide:
            known["true_reward"] = (np.array(rewards), real)
        if over.any():
            known["learned_return"] = (self.core.returns, over)
        for name, (values, where) in known.items():
            infos[name] = values.copy()
            infos[f"_{name}"] = where.copy()
        if hide:
            returns = np.where(over, self.core.returns, 0.0)
            hide_return(infos, returns)
            # infos of the last step where an episode begins at once
            if isinstance(final := infos.get("final_info"), dict):
                infos["final_info"] = final = dict(final)
                hide_return(final, returns)


def _with_states(infos: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an info for each environment that holds only its state."""
    return [{"state": state} for state in infos["state"]] if "state" in infos else [infos]
