package pillar

import (
	"log/slog"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/value"
	"saltern/test/check"
)

// TestOverrideByLists: with pillar_source_merging_strategy list each merge of the override nests the values once
// more. Salt 3008.3 merges it four times for a minion (get_pillar gives a PillarCache), and three times for
// pillar.show_pillar.
func TestOverrideByLists(t *testing.T) {
	root := tree(t, map[string]string{"top.sls": "base: {'*': [a]}\n", "a.sls": "x: 1\n"})
	store, err := cache.Open(t.TempDir(), 1<<20, func(string) error { return nil })
	check.Must(t, err)
	c := New(Config{Roots: base(root), Strategy: "list"})
	s := NewService(ServiceConfig{Compiler: c, Cache: store, Data: true, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	req := Request{ID: "web1", Override: value.NewMap("x", "y")}

	p, err := s.Serve(t.Context(), Question{Request: req})
	check.Must(t, err)
	if got := plainText(p); got != "[x:[[[[y 1] y] y] y]]" {
		t.Errorf("the minion gets %s", got)
	}
	if got := plainText(compile(t, c, req)); got != "[x:[[[y 1] y] y]]" {
		t.Errorf("show_pillar has %s", got)
	}
}

// TestOrderedMaps: Salt's renderer takes only a map for !!omap, so a list is an error of the SLS, and Go leaves
// both to Salt.
func TestOrderedMaps(t *testing.T) {
	for text, fails := range map[string]bool{
		"a: !!omap [x: 1]":                         true,
		"a:\n  - !<tag:yaml.org,2002:omap> [x: 1]": true,
		"a: see roadmap!!omap":                     false,
		"omap: '!'":                                false,
	} {
		_, err := parseYAML([]byte(text), "x", New(Config{}).files.limits())
		if (err != nil) != fails {
			t.Errorf("%q: %v", text, err)
		}
	}
}
