"use strict";
// Puts in what changed. Without it the page loads itself anew now and then.
(() => {
  const main = document.getElementById("main"), silent = document.getElementById("silent");
  const since = document.getElementById("since"), live = document.getElementById("state") !== null;
  const every = 1000 * Number(main.dataset.every || 30);
  let heard = Date.now(), patience = live ? 15000 : 2 * every;

  const put = (id, html) => {
    const place = document.getElementById(id);
    // What somebody is at stays as it is.
    if (place && place.hasAttribute("data-live") && !place.contains(document.activeElement) && place.innerHTML !== html) {
      place.innerHTML = html;
    }
  };

  const hear = () => {
    heard = Date.now();
    silent.hidden = true;
  };

  const again = async () => {
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of page.querySelectorAll("[data-live]")) put(part.id, part.innerHTML);
      document.title = page.title;
      hear();
    } catch {
      // Nothing is heard; the page says so after a while.
    }
  };

  const listen = () => {
    const changes = new EventSource("/live");
    changes.onmessage = (told) => {
      const parts = JSON.parse(told.data);
      for (const id in parts) {
        if (id === "title") document.title = parts[id];
        else put(id, parts[id]);
      }
      patience = 15000;
      hear();
    };
    changes.onerror = () => {
      if (changes.readyState !== EventSource.CLOSED) return;
      // Too many listen already, or nobody answers: ask now and then, and try to listen again.
      patience = 2 * every;
      setTimeout(async () => { await again(); listen(); }, every);
    };
  };

  setInterval(() => {
    if (!silent.hidden || Date.now() - heard < patience) return;
    since.textContent = new Date(heard).toLocaleTimeString();
    silent.hidden = false;
  }, 1000);
  if (live) listen();
  else setInterval(again, every);
})();
