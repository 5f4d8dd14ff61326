// Tables and formulas that scroll sideways can be scrolled with the keyboard.
document$.subscribe(() => {
  for (const frame of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset :is(p, li):has(> math)")) {
    if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0
  }
})
