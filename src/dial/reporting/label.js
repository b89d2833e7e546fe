/* Labels by hand: one image at a time, by buttons, keys or search. Answers stay in the browser. */
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const { images, classes } = data;
  const UNSURE = -1, FEW = 10, KEYS = "1234567890", DIFFERENT = 24;
  const forScore = data.purpose === "score";

  /* What is kept: an answer is null, UNSURE, or the number of a class. */
  const storageKey = "dial-label:" + data.key;
  const empty = () => ({
    answers: images.map(() => null), peeked: images.map(() => false),
    seen: images.map(() => false), // after the answer; one that is changed then counts as peeked
    history: [], place: 0,
  });
  let state = empty();
  let isKept = true;
  try {
    const kept = JSON.parse(localStorage.getItem(storageKey));
    if (kept && kept.answers.length === images.length) state = { ...state, ...kept };
  } catch { isKept = false; }
  const keep = () => {
    try { localStorage.setItem(storageKey, JSON.stringify(state)); } catch { isKept = false; }
  };

  const element = (name, content = "", className = "") => {
    const made = document.createElement(name);
    made.textContent = content;
    made.className = className;
    return made;
  };
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  /* Pictures: the next ones are decoded ahead. */
  const pictures = new Map();
  const draw = (index, alt) => {
    const { source, width, height, small } = images[index];
    const made = new Image(width, height);
    made.alt = alt;
    made.src = source;
    if (small) made.className = "small";
    else made.style.cssText = `max-width: ${2.5 * width}px; max-height: ${2.5 * height}px`;
    return made;
  };
  const picture = (index) => {
    if (!pictures.has(index)) {
      const made = draw(index, `Image ${index + 1} of ${images.length}`);
      made.decode().catch(() => {});
      pictures.set(index, made);
    }
    return pictures.get(index);
  };
  const prepare = (place) => {
    for (const index of [...pictures.keys()]) if (Math.abs(index - place) > 3) pictures.delete(index);
    for (const index of [place + 1, place + 2, place - 1]) if (images[index]) picture(index);
  };

  /* Classes: each button is made once; searching puts those that match in their order. */
  const isMany = classes.length > FEW;
  const areDigits = !isMany && classes.every((name) => /^[0-9]$/.test(name));
  const searchesDigits = isMany && classes.some((name) => /[0-9]/.test(name));
  const plain = (text) => text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase()
    .replace(/[\s_-]+/g, " ").trim();
  const buttons = classes.map((name, index) => {
    const made = element("button", "", "class");
    made.type = "button";
    const text = element("span"); // may break after an underscore
    text.append(...name.split(/(?<=_)/).flatMap((part) => [part, element("wbr")]));
    made.append(element("kbd"), text);
    made.setAttribute("aria-pressed", "false");
    made.addEventListener("click", (event) => {
      if (event.detail) made.blur(); // a click of a pointer: keys are for the next image again
      answer(index);
    });
    return { made, index, words: plain(name), key: made.firstChild };
  });
  if (areDigits) buttons.sort((a, b) => KEYS.indexOf(a.words) - KEYS.indexOf(b.words));
  const byClass = [...buttons].sort((a, b) => a.index - b.index);
  let shown = [], active = -1, marked = null, pressed = null;
  const rank = (words, query) => {
    if (words.startsWith(query)) return 0;
    return words.includes(" " + query) ? 1 : words.includes(query) ? 2 : 3;
  };
  const find = () => {
    const query = plain(byId("search").value);
    const ranked = buttons.map((button) => ({ button, rank: query ? rank(button.words, query) : 0 }));
    const found = [0, 1, 2].flatMap((r) => ranked.filter((each) => each.rank === r));
    if (found.length !== shown.length || found.some(({ button }, place) => button !== shown[place])) {
      arrange(found.map((each) => each.button));
    }
    activate(query ? 0 : -1);
  };
  const arrange = (wanted) => {
    for (const { key } of shown.slice(0, FEW)) key.textContent = "";
    shown = wanted;
    shown.slice(0, FEW).forEach((button, place) => {
      if (!searchesDigits) button.key.textContent = areDigits ? button.words : KEYS[place];
    });
    byId("classes").replaceChildren(...shown.map((button) => button.made));
    byId("classes").scrollTop = 0;
    byId("none").hidden = shown.length > 0;
  };
  const activate = (place) => {
    marked?.classList.remove("active");
    active = Math.min(place, shown.length - 1);
    marked = active < 0 ? null : shown[active].made;
    marked?.classList.add("active");
    marked?.scrollIntoView({ block: "nearest" });
  };
  const clear = () => {
    const search = byId("search");
    if (search.value) {
      search.value = "";
      find();
    } else activate(-1);
  };

  /* What is seen of an image. */
  const isTold = (given) => given !== null && given !== UNSURE;
  const count = () => state.answers.filter((each) => each !== null).length;
  const show = (place) => {
    state.place = place;
    const isEnd = place >= images.length;
    byId("work").hidden = isEnd;
    byId("end").hidden = !isEnd;
    byId("results").hidden = isEnd;
    byId("place").textContent = isEnd ? "Results" : `${place + 1} of ${images.length}`;
    byId("done").textContent = `${count()} answered`;
    byId("bar").style.width = `${100 * count() / images.length}%`;
    if (isEnd) showEnd();
    else showImage(place);
    keep();
  };
  const showImage = (place) => {
    byId("frame").replaceChildren(picture(place));
    prepare(place);
    const given = state.answers[place];
    pressed?.setAttribute("aria-pressed", "false");
    pressed = given === null ? null : given === UNSURE ? byId("unsure") : byClass[given].made;
    pressed?.setAttribute("aria-pressed", "true");
    const isOpen = state.peeked[place] || state.seen[place];
    byId("peek").classList.toggle("open", isOpen);
    byId("prediction").textContent = isOpen
      ? `Predicted: ${classes[images[place].predicted]}` : "Show prediction";
    byId("undo").disabled = !state.history.length;
    byId("back").disabled = place === 0;
    clear();
  };
  const say = (text) => {
    byId("note").textContent = isKept ? text : `${text} (this browser keeps no answers: save the table before you close the page)`;
  };

  /* What a person does. */
  const answer = (given) => {
    const { place } = state;
    state.history.push([place, state.answers[place]]);
    if (state.answers[place] !== given && state.seen[place]) state.peeked[place] = true;
    state.answers[place] = given;
    say(given === UNSURE ? `Image ${place + 1} answered: cannot tell` : `Image ${place + 1} answered: ${classes[given]}`);
    const next = state.answers.indexOf(null, place), first = state.answers.indexOf(null);
    show(next >= 0 ? next : first >= 0 ? first : images.length);
  };
  const undo = () => {
    const last = state.history.pop();
    if (!last) return;
    state.answers[last[0]] = last[1];
    say(`Image ${last[0] + 1}: answer taken back`);
    show(last[0]);
  };
  const peek = () => {
    const { place } = state;
    if (state.answers[place] === null) state.peeked[place] = true;
    else state.seen[place] = true;
    show(place);
  };
  const move = (step) => show(Math.max(0, Math.min(images.length, state.place + step)));
  const resume = () => {
    const open = state.answers.indexOf(null);
    show(open < 0 ? images.length - 1 : open);
  };

  /* The interval of the accuracy, as dial.selection.intervals computes it. */
  const stays = (right, sample, population, candidate) => {
    let total = 1, unlikely = 0.5;
    const add = (ratio) => {
      total += ratio;
      if (Math.abs(ratio - 1) <= 1e-9) unlikely += ratio / 2;
      else if (ratio < 1) unlikely += ratio;
    };
    const rest = population - candidate - sample;
    for (let y = right, ratio = 1; y < sample && ratio; y++) {
      add(ratio *= (candidate - y) * (sample - y) / ((rest + y + 1) * (y + 1)));
    }
    for (let y = right, ratio = 1; y > 0 && ratio; y--) {
      add(ratio *= y * (rest + y) / ((candidate - y + 1) * (sample - y + 1)));
    }
    return unlikely / total >= 0.05 - 1e-9;
  };
  const interval = (right, sample, population) => {
    if (!sample) return [0, 1];
    const share = right / sample, square = 25 / sample;
    const center = (share + square / 2) / (1 + square);
    const half = Math.sqrt(share * (1 - share) * square + square ** 2 / 4) / (1 + square);
    const within = (k) => Math.max(right, Math.min(population - sample + right, Math.round(k)));
    let low = within(population * (center - half)), high = within(population * (center + half));
    const middle = within(population * share);
    while (low < middle && !stays(right, sample, population, low)) low++;
    while (high > middle && !stays(right, sample, population, high)) high--;
    return [low / population, high / population];
  };

  /* The end, which can also be looked at midway. */
  const percent = (value) => `${(100 * value).toFixed(1)}\u202f%`;
  const measure = () => {
    const told = images.map((_, index) => index).filter((index) => isTold(state.answers[index]));
    const right = told.filter((index) => state.answers[index] === images[index].predicted);
    return {
      told: told.length, right: right.length,
      different: told.filter((index) => !right.includes(index)),
      unsure: state.answers.filter((each) => each === UNSURE).length,
      peeked: told.filter((index) => state.peeked[index]).length,
      interval: interval(right.length, told.length, data.population),
    };
  };
  const showEnd = () => {
    const found = measure(), all = count() === images.length;
    byId("verdict").textContent = all ? `All ${plural(images.length, "image")} answered`
      : `${count()} of ${plural(images.length, "image")} answered`;
    const tiles = [[String(found.told), "labelled"], [String(found.unsure), "could not be told"]];
    if (forScore && found.told) {
      tiles.unshift([percent(found.right / found.told), "accuracy on these images"],
        [found.interval.map(percent).join("–").replace("\u202f%", ""), "95 % interval"]);
    }
    if (found.peeked) tiles.push([String(found.peeked), "with the prediction in sight"]);
    byId("tiles").replaceChildren(...tiles.map(([figure, about], place) => {
      const tile = element("div", "", place ? "tile" : "tile first");
      tile.append(element("b", figure), element("span", about));
      return tile;
    }));
    byId("meaning").textContent = !forScore
      ? "These images were chosen because the model is unsure about them, so how many it has right says nothing about its accuracy. Never use this table for scoring."
      : found.told ? `The model is right on ${found.right} of ${found.told} images that were drawn by chance. On all ${data.population.toLocaleString("en")} images of the target its accuracy lies in the interval, in 95 of 100 such samples.`
        : "Label some images to see the accuracy here.";
    byId("save").textContent = `Save ${fileName}`;
    byId("save").disabled = !count();
    byId("resume").textContent = all ? "Back to the images" : "Go on";
    byId("next").textContent = forScore ? "The saved table gives the same, and scores other runs on these images too:"
      : "The saved table takes part in training with:";
    byId("command").textContent = forScore ? `dial evaluate RUN ${fileName}`
      : `dial adapt SOURCE TARGET --labelled ${fileName} --out NEW`;
    byId("others").hidden = !found.different.length;
    byId("gallery").replaceChildren(...found.different.slice(0, DIFFERENT).map(card));
    for (const index of found.different.slice(0, DIFFERENT)) state.seen[index] = true;
    byId("verdict").focus();
  };
  const card = (index) => {
    const made = element("li"), text = element("div");
    const picture = draw(index, `Image ${index + 1}`);
    picture.removeAttribute("style");
    text.append(element("b", `You: ${classes[state.answers[index]]}`), element("br"),
      element("span", `Model: ${classes[images[index].predicted]}`, "soft"));
    made.append(picture, text);
    return made;
  };

  /* The table. */
  const fileName = forScore ? "labels.csv" : "labels-training.csv";
  const cell = (value) => /[",\r\n]/.test(value) ? `"${value.replace(/"/g, '""')}"` : String(value);
  const table = () => {
    const rows = images.map((image, index) => ({
      path: image.path, label: isTold(state.answers[index]) ? classes[state.answers[index]] : "",
      predicted: classes[image.predicted], peeked: state.peeked[index] ? data.peeked : "no",
      purpose: data.purpose, population: data.population, sample: images.length, seed: data.seed,
      run: data.run,
    })).filter((_, index) => state.answers[index] !== null);
    return [data.columns, ...rows.map((row) => data.columns.map((name) => row[name]))]
      .map((cells) => cells.map(cell).join(",") + "\n").join("");
  };
  const save = () => {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
    link.download = fileName;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const restart = () => {
    byId("question").textContent = `This deletes ${plural(count(), "answer")} on this page. A table that was saved stays.`;
    byId("sure").showModal();
  };

  /* Keys. */
  const onArrow = (key) => {
    if (byId("search").value || key === "ArrowUp" || key === "ArrowDown") {
      activate(Math.max(0, active + (key === "ArrowRight" || key === "ArrowDown" ? 1 : -1)));
    } else move(key === "ArrowLeft" ? -1 : 1);
  };
  const onKey = (event) => {
    const { key } = event, search = byId("search"), focused = document.activeElement;
    if (byId("sure").open || event.altKey) return;
    const takesBack = (event.ctrlKey || event.metaKey) && key.toLowerCase() === "z" || key === "Backspace";
    if (takesBack && !search.value) undo();
    else if (event.ctrlKey || event.metaKey) return;
    else if (state.place >= images.length) {
      if (key !== "ArrowLeft") return;
      move(-1);
    } else if (key.startsWith("Arrow")) onArrow(key);
    else if (event.repeat) return;
    else if (key === "?") answer(UNSURE);
    else if (key === "!") peek();
    else if (key === "Escape") {
      clear();
      focused.blur();
    } else if (key === "Enter" && focused.tagName !== "BUTTON") {
      if (active >= 0) answer(shown[active].index);
    } else if (!searchesDigits && KEYS.includes(key)) {
      const chosen = shown.slice(0, FEW).find((button) => button.key.textContent === key);
      if (chosen) answer(chosen.index);
    } else {
      if (isMany && (key.length === 1 && key !== " " || key === "Backspace")) search.focus();
      return; // the letter goes into the search
    }
    event.preventDefault();
  };

  document.title = `Label images: ${data.run}`;
  byId("about").textContent = `${data.run} · ${images.length} of ${data.population.toLocaleString("en")} images, `
    + (forScore ? `drawn by chance, seed ${data.seed}` : `chosen for training, seed ${data.seed}`)
    + (data.unreadable ? ` · ${data.unreadable} could not be read and were replaced` : "");
  document.body.classList.toggle("many", isMany);
  byId("finder").hidden = !isMany;
  byId("search").addEventListener("input", find);
  const clicks = {
    unsure: () => answer(UNSURE), undo, peek, back: () => move(-1), forward: () => move(1),
    results: () => show(images.length), resume, save, restart,
    keep: () => byId("sure").close(),
    discard: () => {
      byId("sure").close();
      state = empty();
      say("");
      show(0);
    },
  };
  for (const [id, action] of Object.entries(clicks)) {
    byId(id).addEventListener("click", (event) => {
      if (event.detail) event.currentTarget.blur();
      action();
    });
  }
  document.addEventListener("keydown", onKey);
  find();
  say("");
  show(Math.max(0, Math.min(images.length, state.place)));
})();
