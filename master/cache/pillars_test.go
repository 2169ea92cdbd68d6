package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

func TestCompiled(t *testing.T) {
	s := open(t, 1<<20)
	now := time.Now().Add(time.Second)
	has := func(id, env string) bool { _, ok := s.Compiled(id, env, now, time.Minute); return ok }
	envs := []string{"", "base", "feature/x", "../../y", strings.Repeat("e", 255)}
	for i, env := range envs {
		if err := s.KeepCompiled("web1", env, value.NewMap("n", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, env := range envs {
		p, _ := s.Compiled("web1", env, now, time.Minute)
		if n, ok := p.Int("n"); !ok || n != int64(i) {
			t.Errorf("environment %q: %v", env, p)
		}
	}
	// No minion gets the pillar of another one, whatever its name.
	for _, id := range []string{"web", "web1:base", "web1.p", "../web1"} {
		if has(id, "") || has(id, "base") {
			t.Errorf("%q has a pillar", id)
		}
	}
	if _, ok := s.Compiled("web1", "", now.Add(time.Minute), time.Minute); ok {
		t.Error("it does not end")
	}
	if _, ok := s.Compiled("web1", "", now.Add(-time.Hour), time.Minute); ok {
		t.Error("one of the future counts")
	}
	for i := range 3 * maxCompiled {
		if err := s.KeepCompiled("web1", fmt.Sprint(i), value.NewMap("n", i)); err != nil {
			t.Fatal(err)
		}
	}
	if entries, _ := os.ReadDir(filepath.Join(s.dir, string(compiled), "web1")); len(entries) == 0 || len(entries) > maxCompiled {
		t.Errorf("%d environments are kept", len(entries))
	}
	if err := s.Forget("web1"); err != nil {
		t.Fatal(err)
	}
	if found, _ := filepath.Glob(filepath.Join(s.dir, "*", "web1*")); len(found) != 0 || has("web1", "1") {
		t.Errorf("left: %v", found)
	}
	if s.KeepCompiled("../x", "", value.NewMap()) == nil || s.FlushCompiled("..") == nil {
		t.Error("any id is taken")
	}
}
