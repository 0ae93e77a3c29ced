// Browsers start no worker from a file on a disk, and the search of the manual is one: there, its script runs in a hidden frame.

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(address) {
      super();
      this.#frame.hidden = true;
      document.documentElement.append(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      inside.importScripts = (...addresses) => Promise.all(addresses.map((each) => this.#load(each)));
      this.#ready = this.#load(new URL(address, document.baseURI));
    }

    async postMessage(data) {
      await this.#ready;
      this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }

    #load(address) {
      const inside = this.#frame.contentDocument;
      const script = Object.assign(inside.createElement("script"), { src: address });
      inside.body.append(script);
      return new Promise((resolve, reject) => Object.assign(script, { onerror: reject, onload: resolve }));
    }
  };
}
