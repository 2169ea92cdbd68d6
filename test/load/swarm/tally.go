package main

import (
	"maps"
	"sync"
)

// tally counts errors by their text.
type tally struct {
	mu    sync.Mutex
	n     int
	texts map[string]int
}

// tallyTexts is the number of texts that are kept apart. Overflow policy: all
// further ones are counted together.
const tallyTexts = 40

// add counts err; nil is none.
func (t *tally) add(err error) {
	if err == nil {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.texts == nil {
		t.texts = map[string]int{}
	}

	text := err.Error()
	if _, known := t.texts[text]; !known && len(t.texts) >= tallyTexts {
		text = "others"
	}

	t.texts[text]++
	t.n++
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// sum returns how many errors there were, and how many of each text.
func (t *tally) sum() (int, map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n, maps.Clone(t.texts)
}
