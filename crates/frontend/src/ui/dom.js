"use strict";
const $ = (id) => document.getElementById(id);

// An element. What a model or a user wrote goes in as text only, never as HTML.
const make = (tag, cls, text) => {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
};

