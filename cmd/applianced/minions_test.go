package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
)

// What other nodes and minions say cannot move the cursor of whoever looks at
// the lists.
func TestAttack26ListOfMinions(t *testing.T) {
	evil := "\x1b[2J\x1b]0;owned\x07web1\r\n\u009b31m"
	now := time.Unix(1000, 0)
	seen := now.Add(-90 * time.Second)
	list := status.MinionList{Unasked: map[string]string{evil: evil}, Minions: []status.Minion{
		{
			ID:        evil,
			Key:       evil,
			Connected: true,
			Node:      evil,
			Address:   evil,
			Finger:    evil,
			Seen:      &seen,
		}, {ID: "web2", Key: "accepted"}}}

	var b bytes.Buffer
	for _, err := range []error{writeMinions(&b, list, now), writeKeys(&b, list, now)} {
		if err != nil {
			t.Fatal(err)
		}
	}

	warnUnasked(&b, list)
	if i := strings.IndexFunc(b.String(),
		func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }); i >= 0 {
		t.Errorf("a control character at %d of %q", i, b.String())
	}

	if n := strings.Count(b.String(), "\n"); n != 7 {
		t.Errorf("%d lines, not 7:\n%s", n, b.String())
	}

	if !strings.Contains(b.String(), "ago") || !strings.Contains(b.String(), "absent") {
		t.Errorf("\n%s", b.String())
	}
}
