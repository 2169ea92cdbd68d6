package main

import (
	"testing"

	"saltern/master/value"
)

func TestMeant(t *testing.T) {
	for _, tt := range []struct {
		kind   string
		target any
		meant  bool
	}{
		{"glob", "sw-*", true},
		{"", "sw-[0-4]", true},
		{"glob", "sw-?0", false},
		{"glob", "[", false},
		{"list", []any{"sw-3", "sw-1"}, true},
		{"list", []any{"sw-3"}, false},
		{"list", "sw-3,sw-1", true},
		{"list", 7, false},
	} {
		o, err := newOrder(value.NewMap("jid", "1", "fun", "test.ping", "tgt_type", tt.kind, "tgt", tt.target))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.meant("sw-1"); got != tt.meant {
			t.Errorf("%s %v: %v", tt.kind, tt.target, got)
		}
	}

	if _, err := newOrder(value.NewMap("tgt_type", "grain", "tgt", "os:Debian")); err == nil {
		t.Error("a target that cannot be matched is taken")
	}
}
