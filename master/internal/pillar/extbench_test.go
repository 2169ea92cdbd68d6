package pillar

import (
	"fmt"
	"testing"
	"time"

	"saltern/master/internal/pillar/extpillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// BenchmarkExtPillars compiles the pillars of 3,000 minions, of a top file, one plain SLS and an
// ext_pillar: by Salt's modules in Python, which is how it was, and in Go. It measures the CPU time of all
// programs, the commands included.
func BenchmarkExtPillars(b *testing.B) {
	const minions = 3000
	files := map[string]string{"p/top.sls": "base:\n  '*': [a]\n", "p/a.sls": "a: 1\n"}
	for i := range minions {
		for _, name := range []string{"id_rsa", "cert.pem", "conf.d/app.conf"} {
			files[fmt.Sprintf("tree/hosts/m%d/%s", i, name)] = fmt.Sprintf("content of m%d\n", i)
		}
	}
	for i := range 10 {
		files[fmt.Sprintf("tree/nodegroups/web/conf.d/%d.conf", i)] = "shared\n"
	}
	root := tree(b, files)
	groups := value.NewMap("web", "m* and not G@os:Plan9")
	chains := map[string][]any{
		"cmd_yaml":  chain("cmd_yaml", "echo 'role: web of %s'"),
		"file_tree": chain("file_tree", root+"/tree"),
	}

	pool := renderer.New(renderer.Config{
		Python:     []string{python(b)},
		MaxWorkers: 1,
		WorkerIdle: time.Hour, // a worker that ends takes its CPU time with it
		Overrides: value.NewMap("root_dir", root, "id", "m", "cachedir", root+"/cache", "nodegroups", groups,
			"pillar_roots", value.NewMap("base", []any{root + "/p"})),
	})
	b.Cleanup(pool.Close)
	runner := extpillar.New(extpillar.Config{})
	b.Cleanup(runner.Close)

	for _, name := range []string{"cmd_yaml", "file_tree"} {
		for _, way := range []string{"python", "go"} {
			b.Run(name+"/"+way, func(b *testing.B) {
				cfg := Config{Roots: base(root + "/p"), Renderers: pool, ExtPillar: chains[name], Nodegroups: groups}
				if way == "go" {
					cfg.External = runner
				}
				c := New(cfg)
				compile(b, c, Request{ID: "m0", Grains: benchGrains(0)}) // Python starts
				all := &keyring{t: b, home: "no agent"}
				before := all.cpuTimeOfAll()
				pillars := 0
				for b.Loop() {
					for i := range minions {
						p := compile(b, c, Request{ID: fmt.Sprint("m", i), Grains: benchGrains(i)})
						if p.Len() < 2 || p.Value("_errors") != nil {
							b.Fatal(plainText(p))
						}
						pillars++
					}
				}
				b.ReportMetric(float64((all.cpuTimeOfAll()-before).Microseconds())/1000/float64(pillars), "cpu-ms/pillar")
				b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(pillars), "ms/pillar")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
