// Typeset the equations that the Markdown extension arithmatex has marked: \( ... \) in a span, \[ ... \] in a div.
for (const element of document.querySelectorAll(".arithmatex")) {
  const source = element.textContent.trim();
  const displayMode = source.startsWith("\\[");
  katex.render(source.slice(2, -2), element, { displayMode, throwOnError: false });
}
