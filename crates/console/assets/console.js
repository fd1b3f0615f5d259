// The console's script: what is live, local times, and holding back a yes until all was seen. Every page works without it;
// the server enforces what is enforced here.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const parsed = (text) => new DOMParser().parseFromString(text, "text/html");
  const HOLD = 550; // The server takes no yes within half a second.

  document.documentElement.classList.add("script");

  // --- times ---------------------------------------------------------------------------------------------------------

  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  const exact = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });

  const left = (at) => {
    const seconds = Math.round((at - Date.now()) / 1000);
    if (seconds <= 0) return "now";
    if (seconds < 90) return `in ${seconds} s`;
    if (seconds < 5400) return `in ${Math.round(seconds / 60)} min`;
    return "";
  };

  const localTimes = (within = document) => {
    for (const time of all("time", within)) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const today = at.toDateString() === new Date().toDateString();
      const of = time.closest(".log") ? exact : clock;
      let text = today ? of.format(at) : `${day.format(at)} ${of.format(at)}`;
      if (time.closest(".left")) {
        const rest = left(at);
        text = rest ? `${rest} (${text})` : text;
      } else if (!time.closest(".log") && !time.closest(".sentence")) {
        text = `at ${text}`;
      }
      if (time.textContent !== text) time.textContent = text;
    }
  };
  localTimes();
  setInterval(() => localTimes(), 10000);

  // --- logging in ------------------------------------------------------------------------------------------------------

  const linkForm = byId("link-form");
  if (linkForm) {
    const enter = () => {
      if (location.hash.length < 2) return;
      byId("token").value = location.hash.slice(1);
      history.replaceState(null, "", "/login");
      linkForm.submit();
    };
    // A link that is put into the address of this very page changes what is behind the `#` only.
    addEventListener("hashchange", enter);
    enter();
  }

  // --- what is live ------------------------------------------------------------------------------------------------------

  const address = document.body.dataset.live;
  if (!address) return;
  const quietly = { headers: { "x-console-live": "1" }, credentials: "same-origin", cache: "no-store" };
  const listeners = [];
  const news = byId("news");
  const link = byId("link");
  const badge = byId("waiting");
  const title = document.body.dataset.title;
  let newest = null;

  const say = (text) => { news.textContent = text; };
  const broken = (text) => { link.textContent = text; link.classList.toggle("broken", text !== ""); };

  const changed = (data) => {
    broken("");
    const [count, id] = data.split(" ");
    byId("count").textContent = count;
    badge.hidden = count === "0";
    document.title = (count === "0" ? "" : `(${count}) `) + title + " · Bailiwick";
    if (newest !== null && id !== newest && id !== "-") {
      say(count === "1" ? "A new question waits." : `A new question waits. ${count} wait in all.`);
    }
    newest = id;
    listeners.forEach((listener) => listener());
  };

  let ended = false;
  const over = () => {
    ended = true;
    broken("Your session has ended. Type “bailiwick console link” for a new link.");
  };

  const listen = () => {
    const source = new EventSource(address);
    source.addEventListener("changed", (event) => changed(event.data));
    source.addEventListener("away", () => broken("The daemon does not answer. What you see may be old."));
    source.addEventListener("ended", () => { source.close(); over(); });
    source.addEventListener("error", () => {
      source.close();
      if (ended) return;
      broken("Not connected to the console: what you see may be old.");
      setTimeout(listen, 2000);
    });
  };
  listen();
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // --- the list of questions -----------------------------------------------------------------------------------------------

  const live = byId("live-list");
  if (live) {
    const list = byId("list");
    let busy = false, again = false;

    // Nothing moves while somebody points at it or is in it: what has gone stays in its place, what is new comes below.
    const atRest = () => !list.matches(":hover") && !list.contains(document.activeElement);

    const tidy = () => {
      if (!atRest()) return;
      all("li.gone", list).forEach((row) => row.remove());
      byId("none").hidden = list.children.length > 0;
    };

    const gone = (row) => {
      if (row.classList.contains("gone")) return;
      row.classList.add("gone");
      const what = row.querySelector(".what");
      const text = document.createElement("p");
      text.className = "what";
      text.append(...what.childNodes);
      what.replaceWith(text);
      const meta = row.querySelector(".meta");
      meta.textContent = "Does not wait any more.";
    };

    const merge = (page) => {
      const fresh = page.getElementById("list");
      if (!fresh) return;
      const there = new Map([...fresh.children].map((row) => [row.id, row]));
      for (const row of [...list.children]) {
        const now = there.get(row.id);
        there.delete(row.id);
        if (!now) { gone(row); continue; }
        const [count, many] = [row.querySelector(".many"), now.querySelector(".many")];
        if (count && many) { count.textContent = many.textContent; }
        else if ((count || many) && atRest()) { row.replaceWith(now); }
      }
      for (const row of there.values()) {
        row.classList.add("new");
        list.append(row);
      }
      while (list.nextSibling) list.nextSibling.remove();
      for (let after = fresh.nextSibling; after;) {
        const next = after.nextSibling;
        live.append(after);
        after = next;
      }
      byId("none").hidden = list.children.length > 0;
      localTimes(live);
      tidy();
    };

    const refresh = async () => {
      if (busy) { again = true; return; }
      busy = true;
      try {
        const answer = await fetch(live.dataset.from, quietly);
        if (answer.ok) merge(parsed(await answer.text()));
      } catch { /* The stream says that the connection is gone. */ }
      busy = false;
      if (again) { again = false; refresh(); }
    };
    listeners.push(refresh);
    list.addEventListener("pointerleave", tidy);
    list.addEventListener("focusout", () => setTimeout(tidy, 0));
    document.addEventListener("visibilitychange", tidy);
  }

  // --- one question ----------------------------------------------------------------------------------------------------------

  const question = byId("question");
  if (question) {
    const whole = byId("whole");
    const choose = byId("choose");
    let held = performance.now() + HOLD, wanted = 0, isGone = false, loading = false;
    const seen = new WeakSet();

    const button = () => byId("say-yes");
    const note = (text) => { const at = byId("yes-note"); if (at && at.textContent !== text) at.textContent = text; };

    // The sentence of the yes, where it is long, has an end of its own.
    const sentenceSeen = () => {
      const box = document.querySelector(".sentence");
      return !box || seen.has(box) || box.scrollHeight <= box.clientHeight + 2;
    };

    const gate = () => {
      const yes = button();
      if (!yes) return;
      const end = byId("end");
      const unread = !end || !seen.has(end);
      const wait = held - performance.now();
      whole.classList.toggle("unread", unread);
      yes.disabled = isGone || unread || !sentenceSeen() || wanted > 0 || wait > 0;
      if (isGone) note("It does not wait any more.");
      else if (unread) note("Yes can be said when you have come to the end of “All of it”.");
      else if (!sentenceSeen()) note("Yes can be said when you have come to the end of the sentence above.");
      else note("");
      if (wait > 0) setTimeout(gate, wait + 5);
    };

    const hold = () => { held = performance.now() + HOLD; gate(); };

    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) reached(entry.target);
    });

    const reached = (mark) => {
      if (mark.id === "next") { load(mark); return; }
      seen.add(mark);
      gate();
    };

    const watch = () => {
      for (const id of ["end", "next"]) {
        const mark = byId(id);
        if (!mark) continue;
        watcher.observe(mark);
        mark.addEventListener("focus", () => reached(mark));
      }
    };

    const load = async (mark) => {
      if (loading) return;
      loading = true;
      try {
        const answer = await fetch(`${question.dataset.next}?part=${mark.dataset.part}`, { credentials: "same-origin", cache: "no-store" });
        if (answer.ok) {
          const page = parsed(await answer.text());
          const focused = document.activeElement === mark;
          watcher.unobserve(mark);
          mark.replaceWith(...page.body.childNodes);
          if (focused) whole.focus();
          say(`Part ${answer.headers.get("x-console-part")} of ${question.dataset.parts} was added.`);
          watch();
          hold();
        }
      } catch { /* It is tried again when the mark is reached again. */ }
      loading = false;
    };

    const watchSentence = () => {
      const box = document.querySelector(".sentence");
      if (!box) return;
      const look = () => {
        if (box.scrollTop + box.clientHeight >= box.scrollHeight - 2) { seen.add(box); gate(); }
      };
      box.addEventListener("scroll", look);
      look();
    };

    // What is chosen: the server makes the sentence.
    const terms = byId("terms");
    const chosen = () => {
      const fields = new URLSearchParams(new FormData(choose));
      fields.delete("part");
      const offer = choose.querySelector("input[name=offer]:checked");
      if (terms) {
        terms.disabled = !!offer && offer.hasAttribute("data-once");
        terms.hidden = terms.disabled;
        byId("times-field").hidden = byId("often").value !== "times";
        const until = byId("long").value === "until";
        byId("until-field").hidden = !until;
        if (until && !terms.disabled) {
          const at = new Date(byId("until-local").value).getTime();
          if (!(at > Date.now())) return null;
          fields.set("until", String(at));
        }
      }
      return fields;
    };

    const offered = async () => {
      const fields = chosen();
      wanted += 1;
      gate();
      const mine = wanted;
      try {
        if (fields) {
          const answer = await fetch(`${choose.dataset.offer}?${fields}`, { credentials: "same-origin", cache: "no-store" });
          if (mine !== wanted) return;
          const fresh = answer.ok ? parsed(await answer.text()).getElementById("yes") : null;
          if (mine !== wanted) return;
          if (fresh) {
            byId("yes").replaceWith(fresh);
            localTimes(fresh);
            watchSentence();
            wanted = 0;
          }
        }
      } catch { /* Without its sentence there is no yes. */ }
      hold();
      if (wanted > 0) note("Choose an answer that can be given, for the sentence to be shown.");
    };

    if (choose) {
      const long = byId("long");
      if (long) long.append(new Option("until a time of my choice …", "until"));
      choose.addEventListener("change", offered);
      choose.addEventListener("submit", (event) => { event.preventDefault(); offered(); });
      chosen();
    }
    // Nothing is said twice by a double click.
    for (const form of all(".answers form[method=post]")) {
      form.addEventListener("submit", (event) => {
        if (form.dataset.sent) event.preventDefault();
        form.dataset.sent = "yes";
      });
    }
    document.addEventListener("submit", (event) => {
      if (event.target.id === "yes" && button().disabled) event.preventDefault();
    });

    listeners.push(async () => {
      try {
        const answer = await fetch(`${question.dataset.state}?words=${question.dataset.words}`, quietly);
        if (!answer.ok) return;
        const page = parsed(await answer.text());
        isGone = !!page.querySelector("[data-gone]");
        const state = byId("state");
        if (state.innerHTML !== page.body.innerHTML) state.replaceChildren(...page.body.childNodes);
        if (isGone) all(".answers button").forEach((one) => { one.disabled = true; });
        gate();
      } catch { /* The stream says that the connection is gone. */ }
    });

    watch();
    watchSentence();
    gate();
  }
})();
