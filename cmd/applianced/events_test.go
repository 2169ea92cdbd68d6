package main

import (
	"strings"
	"testing"
	"time"

	"saltern/supervisor/history"
)

// What other nodes say in an event cannot move the cursor of whoever reads it.
func TestAttack26Events(t *testing.T) {
	const evil = "\x1b[2J\x07n3\r\n\u009b31m"
	var b strings.Builder
	at := time.Date(2026, 11, 21, 22, 44, 0, 0, time.UTC)
	if err := writeEvents(&b, []history.Event{{Time: at, Kind: history.Kind(evil), Subject: evil, Text: evil},
		{Time: at, Kind: history.Problem, Code: "SCA-104", Subject: "n3", Text: "node n3 is unreachable"}, {Time: at, Kind: history.Virtual, Text: "moved"}}); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(b.String(), func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }); i >= 0 || strings.Count(b.String(), "\n") != 3 {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), "2026-11-21 22:44:00  SCA-104  ") || !strings.Contains(b.String(), "  -  ") {
		t.Errorf("\n%s", b.String())
	}
}
