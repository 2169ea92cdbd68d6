package diff

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"saltern/test/check"
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

// TestManyMinions: a commit that touches two SLS and the top file, for minions with 20 SLS and 10 roles. With
// MINIONS=2000 it is to take less than 10 s on two idle cores, which the log tells. The test bounds the
// processor time of this process only: others may compute beside it, and workers in Python are not counted.
func TestManyMinions(t *testing.T) {
	python(t)
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	tree := benchTree()
	count, _ := strconv.Atoi(cmp.Or(os.Getenv("MINIONS"), "200"))
	minions := manyMinions(count)
	s, root := newService(t, tree, minions, nil)
	began, before := time.Now(), cpuTime(t)
	report := compareFolder(t, s, root, with(tree,
		"s3.sls", fmt.Sprintf(benchSLS, 3)+"  added: {{ grains.os }}\n",
		"s12.sls", fmt.Sprintf(benchSLS, 77),
		"top.sls", tree["top.sls"]+"  'role:r5 and m000*':\n    - s19\n"))
	used := cpuTime(t) - before
	t.Logf("%v, of processors %v; %d minions in %d groups", time.Since(began), used, report.Compared, len(report.Groups))
	if report.Differing != count || len(report.Refused) > 0 || report.More > 0 {
		t.Errorf("%s", report.Text(false))
	}
	if used > 20*time.Second {
		t.Errorf("it used %v of processors", used)
	}
}

// cpuTime returns the processor time of this process and of its children that have ended.
func cpuTime(t testing.TB) (sum time.Duration) {
	t.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		check.Must(t, syscall.Getrusage(who, &usage))
		sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return sum
}
