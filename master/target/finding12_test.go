package target

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestFinding12Effort: the work on one target is bounded. A target that needs more work gives an
// error, and not a "no", which a "not" would turn into a match of every minion.
func TestFinding12Effort(t *testing.T) {
	var ids []string
	for i := range 2000 {
		ids = append(ids, fmt.Sprintf("%s%04d", strings.Repeat("a", 60), i))
	}

	slow := "(?=a)(a*)*b"
	for typ, tgt := range map[string]any{"pcre": slow, "compound": "not E@" + slow} {
		if got, _, err := Resolve(ids, tgt, typ, Env{}); !errors.Is(err, errEffort) {
			t.Errorf("%s: %d minions, %v", typ, len(got), err)
		}
	}

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Resolve(ids, "*", "glob", Env{Effort: NewEffort(gone)}); !errors.Is(err, errEffort) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("for somebody who has left: %v", err)
	}

	e := NewEffort(t.Context())
	if got, _, err := Resolve(ids, "*", "glob", Env{Effort: e}); err != nil || len(got) != len(ids) ||
		e.Steps() != int64(len(ids)) {
		t.Errorf("%d minions in %d steps (%v)", len(got), e.Steps(), err)
	}
}

func TestFinding12Lists(t *testing.T) {
	names := make([]any, maxNames)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}

	ids := []string{"n5", "n7", "other"}
	got, missing, err := Resolve(ids, names, "list", Env{})
	if err != nil || !slices.Equal(got, []string{"n5", "n7"}) || len(missing) != maxNames-2 {
		t.Errorf("%v and %d missing, %v", got, len(missing), err)
	}

	text := strings.Repeat("n,", maxNames)
	for typ, tgt := range map[string]any{"list": append(names, "x"), "text": text, "compound": "L@" + text} {
		if typ == "text" {
			typ = "list"
		}
		if _, _, err := Resolve(ids, tgt, typ, Env{}); !errors.Is(err, errInvalid) {
			t.Errorf("%s of too many names: %v", typ, err)
		}
	}
}
