/** What a browser keeps for the page. Where storage is switched off, the page works and forgets. */

class Kept {
  /** `storage` is a function, because even to name one may be refused. */
  constructor(storage) {
    this.storage = storage;
  }

  get(name) {
    try {
      return this.storage().getItem(name);
    } catch {
      return null;
    }
  }

  set(name, value) {
    try {
      this.storage().setItem(name, value);
    } catch {
      // as above
    }
  }

  remove(name) {
    try {
      this.storage().removeItem(name);
    } catch {
      // as above
    }
  }
}

export const kept = new Kept(() => localStorage); // by this browser
export const visit = new Kept(() => sessionStorage); // by this tab, through reloads
