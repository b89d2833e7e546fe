// Buttons that copy the line beside them; without scripts the lines can still be selected.
"use strict";

async function copy(line) {
  try {
    await navigator.clipboard.writeText(line.textContent);
    return true;
  } catch { // an old browser, or one that refuses it to a page opened from a file
    getSelection().selectAllChildren(line);
    return document.execCommand("copy");
  }
}

for (const button of document.querySelectorAll("button.copy")) {
  const line = button.parentElement.querySelector("code");
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.textContent = (await copy(line)) ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
