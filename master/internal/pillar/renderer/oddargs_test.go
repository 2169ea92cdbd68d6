package renderer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestOddArgumentsOfReactions: arguments in forms that no manual shows ask for the same calls as with
// Salt's reactor, or are refused as by it (finding m7).
func TestOddArgumentsOfReactions(t *testing.T) {
	t.Parallel()
	r, config, root := reactorMaster(t)
	var cases []reactorCase
	for n, text := range []string{
		"x:\n  local.test.arg:\n    - tgt: m1\n    - args: [1, 2]\n",
		"x:\n  local.test.arg:\n    - tgt: m1\n    - args: {a: 1}\n",
		"x:\n  local.test.arg:\n    - tgt: m1\n    - args: text\n",
		"x:\n  local.test.arg:\n    - tgt: m1\n    - arg: [1, 2]\n    - kwarg: [{a: 1}]\n",
		"x:\n  local.test.arg:\n    - tgt: m1\n    - kwarg: [a, b]\n",
		"x:\n  local.test.arg:\n    - tgt: m1\n    - kwarg: text\n",
		"x:\n  local.test.arg: {tgt: m1, arg: [1]}\n",
		"x:\n  runner.own.any: {args: [{a: 1}]}\n",
		"x:\n  runner.own.any: ~\n",
		"x:\n  runner.own.none: ~\n",
		"x:\n  runner.own.any: text\n",
		"x:\n  runner.own.any: []\n",
		"x:\n  runner.own.any:\n    - args: [1, 2]\n",
		"x:\n  runner.own.any:\n    - args: [{a: 1}, 2]\n",
		"x:\n  wheel.own.any:\n    - args: ~\n",
		"x:\n  runner.own.few:\n    - a: ~\n    - b: [1]\n",
	} {
		path := filepath.Join(root, fmt.Sprintf("odd%02d.sls", n))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, reactorCase{"my/event", map[string]any{"id": "m1"}, []string{path}})
	}

	for i, want := range saltReacts(t, config, cases) {
		t.Run(filepath.Base(cases[i].Files[0]), func(t *testing.T) {
			sameReaction(t, cases[i], reacts(t, r, cases[i]), want)
		})
	}
}
