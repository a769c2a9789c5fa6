/** Instructions and help; single-key shortcuts that can be switched off. */

import { kept } from './storage.js';

const byId = (id) => document.getElementById(id);

export class Dialogs {
  constructor() {
    this.instructions = byId('instructions');
    this.help = byId('help');
    for (const dialog of [this.instructions, this.help]) {
      dialog.addEventListener('click', (event) => {
        if (event.target === dialog) dialog.close(); // beside it
      });
      dialog.addEventListener('close', () => dialog.querySelectorAll('video').forEach((v) => v.pause()));
      dialog.querySelector('[data-close]').addEventListener('click', () => dialog.close());
    }
    byId('open-instructions').addEventListener('click', () => this.toggle(this.instructions));
    byId('open-help').addEventListener('click', () => this.toggle(this.help));
    const keys = byId('single-keys');
    keys.checked = kept.get('preferl-single-keys') !== 'off';
    keys.addEventListener('change', () => kept.set('preferl-single-keys', keys.checked ? 'on' : 'off'));
  }

  get open() {
    return this.instructions.open || this.help.open;
  }

  get singleKeys() {
    return byId('single-keys').checked;
  }

  toggle(dialog) {
    if (dialog.open) return dialog.close();
    if (this.open) return;
    dialog.showModal();
    const moving = !matchMedia('(prefers-reduced-motion: reduce)').matches;
    if (moving) dialog.querySelectorAll('video').forEach((video) => video.play().catch(() => {}));
  }

  /** Settles when the instructions in their present wording were read. */
  async read() {
    const version = this.instructions.dataset.version;
    if (kept.get('preferl-read') === version) return;
    this.toggle(this.instructions);
    await new Promise((resolve) =>
      this.instructions.addEventListener('close', resolve, { once: true }),
    );
    kept.set('preferl-read', version);
  }
}
