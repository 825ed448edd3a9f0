// Browsers give a page of a file no worker. On such a page a hidden frame does its work, so that search works without a server.
(function () {
  if (location.protocol !== "file:") return;
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame;
      this.received = (event) => {
        if (event.source !== frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      addEventListener("message", this.received);
      const inner = frame.contentWindow.document;
      const start =
        "var post=parent.postMessage.bind(parent);self.postMessage=function(m){post(m,'*')};" +
        "self.importScripts=function(){return[].slice.call(arguments).reduce(function(before,url){return before.then(function(){" +
        "return new Promise(function(done,failed){var s=document.createElement('script');s.src=url;s.onload=done;s.onerror=failed;" +
        "document.body.appendChild(s)})})},Promise.resolve())};";
      this.ready = new Promise((done) => {
        frame.onload = done;
      });
      inner.open();
      inner.write(`<html><body><script>${start}<\/script><script src="${url}"><\/script></body></html>`);
      inner.close();
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      removeEventListener("message", this.received);
      this.frame.remove();
    }
  }
  window.Worker = window.IFrameWorker = IFrameWorker;
})();
