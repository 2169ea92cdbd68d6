package pillar

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/value"
)

// TestIDsOfNoMinionReachNothing: an id that a caller has made up reaches neither a shell nor a path.
func TestIDsOfNoMinionReachNothing(t *testing.T) {
	root := tree(t, map[string]string{
		"p/top.sls":         "base:\n  '*': [a]\n",
		"p/a.sls":           "a: 1\n",
		"tree/hosts/m/key":  "own\n",
		"tree/secret/token": "secret\n",
	})
	ran := filepath.Join(root, "ran")
	c := New(Config{
		Roots:     base(root + "/p"),
		External:  externalRunner(t),
		ExtPillar: chain("cmd_yaml", "echo 'a: 2' # %s", "cmd_yaml", "echo id: %s", "file_tree", root+"/tree"),
	})

	for _, id := range []string{
		"x; touch " + ran, "x\ntouch " + ran, "$(touch " + ran + ")", "../secret", "m/../../secret", "..", ".", "*/../..", "m*", "",
		strings.Repeat("m", 300),
	} {
		p, err := c.Compile(t.Context(), Request{ID: id})
		if _, statErr := os.Stat(ran); statErr == nil {
			t.Fatalf("%q: the shell has obeyed the id", id)
		}
		if err == nil && (p.Len() != 1 || len(p.List("_errors")) != 1) {
			t.Errorf("%q: %s", id, plainText(p))
		}
		if _, err := c.Origins(t.Context(), Request{ID: id}); err == nil {
			t.Errorf("%q has origins", id)
		}
		if _, err := c.Outcome(t.Context(), Request{ID: id}, nil, nil); err == nil {
			t.Errorf("%q has an outcome", id)
		}
	}

	for _, id := range []string{"m", "*"} {
		if p := compile(t, c, Request{ID: id, Grains: value.NewMap()}); p.Value("_errors") != nil || p.Value("a") == nil {
			t.Errorf("%q: %s", id, plainText(p))
		}
	}
}
