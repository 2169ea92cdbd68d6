package pillar

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestWaysAreBounded: SLS that all include each other have more ways than can be counted, and a top file may
// select an SLS in thousands of lines.
func TestWaysAreBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ sls, lines, depth int }{
		"mesh":           {sls: 30, lines: 3},
		"mesh, no line":  {sls: 10},
		"many lines":     {sls: 3, lines: 5000},
		"mesh and lines": {sls: 100, lines: 2000},
		"chain":          {sls: 120, lines: 1, depth: 1},
	} {
		t.Run(name, func(t *testing.T) {
			log := newOriginLog()
			sls := func(i int) string { return fmt.Sprintf("s%d", i) }
			for i := range tt.sls {
				log.of(Origin{FileKey: FileKey{"base", sls(i)}, Path: "/" + sls(i)})
				for j := range tt.sls {
					if i != j && (tt.depth == 0 || j == i+tt.depth) {
						log.addInclude("base", sls(i), sls(j), "key")
					}
				}
			}
			for i := range tt.lines {
				log.lines = append(log.lines, scopedLine{Line: Line{Env: "base", Top: "base", Target: fmt.Sprintf("web%d*", i), SLS: []string{"s*"}}})
			}

			o := &Origins{Files: log.files, log: log}
			began := time.Now()
			for i := range o.Files {
				ways := o.Ways(i)
				if len(ways) > maxWays || tt.lines > 0 && len(ways) == 0 {
					t.Fatalf("%d ways to %s", len(ways), o.Files[i].SLS)
				}
				for _, way := range ways {
					if n := strings.Count(way, " > "); n > maxIncludeDepth+1 {
						t.Errorf("a way of %d includes", n)
					}
				}
			}
			if took := time.Since(began); took > 20*time.Second { // without bounds it takes years
				t.Errorf("%v for %d files", took, len(o.Files))
			}
		})
	}
}
