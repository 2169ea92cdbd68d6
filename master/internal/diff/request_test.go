package diff

import (
	"math/big"
	"strings"
	"testing"

	"saltern/master/client"
	"saltern/master/runner"
	"saltern/master/value"
)

// TestNamesThatLookLikeOthers: the name of a ref that YAML takes for a number, a date or a truth value is
// compared as it was typed on the command line. What another program has parsed is refused, since 1.10 and 1.1
// are then the same.
func TestNamesThatLookLikeOthers(t *testing.T) {
	names := strings.Fields("1.10 0123456 1234567 1e10 1.0e+1 0x1f 1_000 yes no on null ~ None 2026-01-01 .inf -1 1:30 'x'")
	for _, name := range names {
		for _, word := range []string{name, "ref=" + name, "ref='" + name + "'"} {
			args, named := client.ParseTextArgs([]string{word}, nil, runner.IsText(pillarDiff)), value.NewMap()
			if m, ok := args[0].(*value.Map); ok {
				args, named = nil, value.NewMap("ref", m.Value("ref"))
			}
			r, err := requestOf(pillarDiff, args, named)
			if want := strings.Trim(name, "'"); err != nil && want != "" || r.To.Ref != want && !strings.Contains(word, "''") {
				t.Errorf("%s: compares %q (%v)", word, r.To.Ref, err)
			}
		}
	}

	for _, v := range []any{1.1, int64(123456), uint64(1), big.NewInt(1), true, []any{"x"}, value.NewMap("a", 1)} {
		for _, key := range []string{"ref", "from", "remote", "into", "saltenv", "format"} {
			named := value.NewMap("ref", "x")
			named.Set(key, v)
			if _, err := requestOf(pillarDiff, nil, named); err == nil || !strings.Contains(err.Error(), "quotes") {
				t.Errorf("%s %v is taken: %v", key, v, err)
			}
		}
		if _, err := questionOf(nil, value.NewMap("key", v)); err == nil {
			t.Errorf("key %v is taken", v)
		}
	}
	if q, err := questionOf(nil, value.NewMap("file", "a", "block", int64(2))); err != nil || q.block != 2 {
		t.Error(err)
	}
}
