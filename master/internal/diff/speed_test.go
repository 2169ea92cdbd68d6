package diff

import (
	"fmt"
	"testing"
	"time"
)

// benchSLS is what an SLS of a service may be.
const benchSLS = `{%% set pkg = salt['grains.filter_by']({'Debian': {'name': 'apache2'}, 'RedHat': {'name': 'httpd'}}, grain='os') %%}
service%[1]d:
  package: {{ pkg.name }}
  role: {{ grains['role'] }}
  port: {{ 8000 + %[1]d }}
  password: S3CR3T-%[1]d
  workers:
{%% for i in range(10) %%}
    - {name: w{{ i }}, queue: {{ grains['role'] }}-{{ i }}}
{%% endfor %%}
`

// benchTree has twenty SLS, of which each role gets ten.
func benchTree() map[string]string {
	files := map[string]string{"top.sls": "base:\n  '*': [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9]\n"}
	for i := range 20 {
		files[fmt.Sprintf("s%d.sls", i)] = fmt.Sprintf(benchSLS, i)
	}
	for role := range 10 {
		files["top.sls"] += fmt.Sprintf("  'role:r%d':\n    - match: grain\n    - s%d\n", role, 10+role)
	}
	return files
}

// TestTwoThousandMinions: a commit that touches two SLS and the top file, for 2,000 minions with 20
// SLS and 10 roles, must take less than 10 s on two cores. The test allows more: others compute
// beside it.
func TestTwoThousandMinions(t *testing.T) {
	python(t)
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	tree := benchTree()
	minions := manyMinions(2000)
	s, root := newService(t, tree, minions, nil)
	began := time.Now()
	report := compareFolder(t, s, root, with(tree,
		"s3.sls", fmt.Sprintf(benchSLS, 3)+"  added: {{ grains.os }}\n",
		"s12.sls", fmt.Sprintf(benchSLS, 77),
		"top.sls", tree["top.sls"]+"  'role:r5 and m000*':\n    - s19\n"))
	took := time.Since(began)
	t.Logf("%v; %d minions in %d groups", took, report.Compared, len(report.Groups))
	if report.Differing != 2000 || len(report.Refused) > 0 || report.More > 0 {
		t.Errorf("%s", report.Text(false))
	}
	if took > 60*time.Second {
		t.Errorf("it took %v", took)
	}
}
