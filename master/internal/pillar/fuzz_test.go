package pillar

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// capturedGrains are the grains that a real minion sent.
func capturedGrains(t testing.TB) *value.Map {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/wire/index.json")
	if err != nil {
		t.Fatal(err)
	}

	var index struct {
		Vectors []struct {
			File   string
			Expect any
		}
	}

	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}

	for _, v := range index.Vectors {
		if v.File == "pillar_min8_req.bin" {
			return toMap(v.Expect.(map[string]any)["grains"]).(*value.Map)
		}
	}

	t.Fatal("the captured request is not there")
	return nil
}

// TestCapturedPillar compiles the pillar that a real master sent to a real
// minion, from that minion's own grains.
func TestCapturedPillar(t *testing.T) {
	root := tree(t,
		map[string]string{
			"top.sls": "base:\n  'G@os:Debian and G@role:web':\n    - lab\n",
			"lab.sls": "target: /opt/saltlab/out\nsecret: test-only-pillar-value\nnumbers: [1, 2, 3]\nnested: {a: yes, b: ~, c: 1.5}\n",
		})
	p := compile(t, New(Config{Roots: base(root)}), Request{ID: "min8", Grains: capturedGrains(t)})
	if got := jsonText(t, show(p)); got != `{"m":[["target","/opt/saltlab/out"],["secret","test-only-pillar-value"],["numbers",[1,2,3]],["nested",{"m":[["a",true],["b",null],["c",1.5]]}]]}`+"\n" {
		t.Errorf("got %s", got)
	}
}

// FuzzCompile: no text in a tree makes the master panic, hang or give a
// pillar that cannot be sent.
func FuzzCompile(f *testing.F) {
	for name, text := range parityTree {
		if strings.HasSuffix(name, "/top.sls") {
			f.Add(text, parityTree["p/web/init.sls"], "dev")
		} else {
			f.Add("base:\n  '*': [a, 'b*', {order: 1}]\n  'm:1': [{match: pillar}, b]\n", text, "../x")
		}
	}

	f.Add("base: {'*': [a]}", "include: [a, .a, ..a, 'a*', {a: {key: 'x:y', defaults: {q: 1}}}, b]\nx: [1]", "")
	grains := capturedGrains(f)
	f.Fuzz(func(t *testing.T, top, text, env string) {
		if len(top)+len(text) > 4096 {
			return
		}

		root := t.TempDir()
		for name, content := range map[string]string{
			"top.sls": top,
			"a.sls":   text,
			"b.sls":   "include: [a]\nb: 1",
			"bb.sls":  text,
		} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		c := New(Config{
			Roots:            map[string][]string{"base": {root}, "__env__": {root + "/__env__"}},
			MergeLists:       len(top)%2 == 0,
			IncludesOverride: len(text)%2 == 0,
		})

		for _, pillarenv := range []string{"", env} {
			p, err := c.Compile(t.Context(),
				Request{ID: "min8", Grains: grains, Pillarenv: pillarenv, Saltenv: env, Override: value.NewMap("o", 1)})
			if err != nil {
				t.Fatal(err)
			}

			if _, err := msgpack.Marshal(p, msgpack.Raw); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("\x81\xa1a\x91\x01"), []byte("\x81\xa1a\x91\xc3"))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, _ := msgpack.Decode(x, msgpack.Limits{Depth: 20, Nodes: 1000})
		b, _ := msgpack.Decode(y, msgpack.Limits{Depth: 20, Nodes: 1000})
		ma, ok1 := a.(*value.Map)
		mb, ok2 := b.(*value.Map)
		if !ok1 || !ok2 {
			return
		}

		pack := func(v any) string { b, _ := msgpack.Marshal(v, msgpack.Modern); return string(b) }
		before := pack(ma) + pack(mb)
		for _, s := range []string{"smart", "overwrite", "list", "none"} {
			for _, lists := range []bool{false, true} {
				m := mergeBy(ma, mb, s, lists)
				if s != "list" && pack(mergeBy(m, mb, s, lists)) != pack(m) && !lists {
					t.Fatalf("%s: merging twice differs", s)
				}
			}
		}

		if pack(ma)+pack(mb) != before {
			t.Fatal("merging changed its arguments")
		}
	})
}
