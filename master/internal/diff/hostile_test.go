package diff

import (
	"fmt"
	"math/big"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/pillar"
)

// TestDefaultsOfIncludesAreNoOptions: compile_template of Salt takes what an include gives as defaults for
// its own arguments. One of them replaces the options by which an import finds its files, with
// modules of the ref.
func TestDefaultsOfIncludesAreNoOptions(t *testing.T) {
	t.Parallel()
	python(t)
	opts := `{file_client: local, fileserver_backend: [evil], extension_modules: "{{ tplpath | replace('/a.sls', '') }}/ext",
    cachedir: /nonexistent, file_roots: {}, pillar_roots: {}, id: x, __role: master, __fs_update: true, hash_type: sha256,
    optimization_order: [0], file_ignore_regex: [], file_ignore_glob: [], fileserver_limit_traversal: false, grains: {}}`
	given := map[string]string{
		"context":  "{context: {fileclient: null, _pillar_rend: false, opts: " + opts + "}}",
		"direct":   "{opts: " + opts + "}",
		"client":   "{fileclient: null}",
		"pillar":   "{_pillar_rend: false}",
		"renderer": "{renderers: {}}",
		"path":     "{tmplpath: /etc/passwd}",
		"tpldir":   "{tpldir: ../../served}",
		"pillars":  "{context: {pillar: {x: 1}}}",
	}
	for name, defaults := range given {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root := newService(t, served, manyMinions(1), nil)
			report := compareFolder(t, s, root, with(served,
				"top.sls", "base: {'*': [a, c]}\n",
				"a.sls", "include:\n  - b:\n      defaults: "+defaults+"\nz: {{ grains.os }}\n",
				"b.sls", "{% import 'x' as y %}\nb: 1\n",
				"c.sls", "c: {{ grains.os }}\n",
				"x", "{% set x = 1 %}\n",
				"ext/fileserver/evil.py", "import salt.utils.yamlloader as y\ny.SaltYamlSafeLoader.get_single_data = lambda self: {'PWNED': 1}\n"))
			text := report.Text(false)
			if !strings.Contains(text, "\n  b is given ") || strings.Contains(text, "PWNED") {
				t.Errorf("not refused:\n%s", text)
			}
			t.Log(text)
		})
	}
}

// TestImportsInCircles: a file that imports itself many times is read once.
func TestImportsInCircles(t *testing.T) {
	t.Parallel()
	python(t)
	s, root := newService(t, served, manyMinions(1), nil)
	circles := "x: {{ salt['cmd.run']('id') }}\n" + strings.Repeat("{% import 'common.sls' as a %}{% import 'deb.sls' as b %}\n", 20)
	began := time.Now()
	report := compareFolder(t, s, root, with(served,
		"common.sls", circles,
		"deb.sls", circles))
	if report.Code() != codeDiffers || len(report.Refused) != 2 || time.Since(began) > 20*time.Second {
		t.Errorf("after %v: %s", time.Since(began), report.Text(false))
	}
}

// TestDefaultsOfRefusedFiles: what an include gives to a file that cannot be told counts as its text.
func TestDefaultsOfRefusedFiles(t *testing.T) {
	t.Parallel()
	python(t)
	tree := with(served,
		"common.sls", "include: [{sub: {defaults: {port: 80}}}]\n",
		"sub.sls", "port: {{ port }}\nid: {{ salt['cmd.run']('id') }}\n")
	s, root := newService(t, tree, manyMinions(1), nil)
	if report := compareFolder(t, s, root, tree); report.Code() != codeSame {
		t.Errorf("the same files: %s", report.Text(false))
	}
	tree = with(tree, "common.sls", "include: [{sub: {defaults: {port: 81}}}]\n")
	if report := compareFolder(t, s, root, tree); report.Code() != codeDiffers {
		t.Errorf("other defaults: %s", report.Text(false))
	}
}

// TestComputedImports: what a refused file imports by a computed name is not known, so it counts as
// changed.
func TestComputedImports(t *testing.T) {
	t.Parallel()
	python(t)
	for _, tag := range []string{
		`{% import "deb" ~ ".sls" as x %}`, `{% import ("deb" ~ ".sls") as x %}`, `{% include ["no", "deb.sls"] %}`,
		`{% import "rpm.sls" if grains.os == "RedHat" else "deb.sls" as x %}`, "#jinja2: line_statement_prefix: '%'\n% import 'deb.sls' as x",
	} {
		tree := with(served, "common.sls", tag+"\nid: {{ salt['cmd.run']('id') }}\n", "top.sls", "base: {'*': [common]}\n")
		s, root := newService(t, tree, manyMinions(1), nil)
		if report := compareFolder(t, s, root, with(tree, "deb.sls", "apt: false\n")); report.Code() != codeDiffers {
			t.Errorf("%s: %s", tag, report.Text(false))
		}
	}
}

// TestRefusedBeyondTheBound: files beyond those that a report lists count too.
func TestRefusedBeyondTheBound(t *testing.T) {
	t.Parallel()
	r := newReport(Request{}, 1, nil)
	for i := range maxRefused + 1 {
		r.noteRefusal("m", refusal{FileKey: pillar.FileKey{Env: "base", SLS: fmt.Sprint(i)}, same: i < maxRefused})
	}
	r.Compared = 1
	r.finish()
	if r.Code() != codeDiffers || !strings.Contains(r.Text(false), "and more, 1 times") {
		t.Errorf("code %d", r.Code())
	}
}

// TestSmallFilesOfManyValues: a ref may be small and give values without end.
func TestSmallFilesOfManyValues(t *testing.T) {
	if os.Getenv("SALTERN_PYTHON") == "" {
		t.Log("without templates: SALTERN_PYTHON is not set")
	}
	many := strings.Repeat("*a,", 340)
	for name, text := range map[string]string{
		"aliases":    "aNR: &a [" + strings.Repeat("{},", 340) + "]\nbNR: [" + many + "]\n",
		"one file":   "aNR: &a [" + strings.Repeat("{},", 1000) + "]\nbNR: [" + strings.Repeat("*a,", 1000) + "]\n",
		"long texts": "aNR: {{ 'x' * 3000000 }}\n",
		"too long":   "aNR: {{ 'x' * 5000000 }}\n",
	} {
		if strings.Contains(text, "{{") && os.Getenv("SALTERN_PYTHON") == "" {
			continue
		}
		files := map[string]string{"top.sls": "base:\n  '*':\n"}
		for i := range map[string]int{"aliases": 20, "one file": 2, "long texts": 15, "too long": 1}[name] {
			files["top.sls"] += fmt.Sprintf("    - s%d\n", i)
			files[fmt.Sprintf("s%d.sls", i)] = strings.ReplaceAll(text, "NR", fmt.Sprint(i))
		}

		t.Run(name, func(t *testing.T) {
			s, root := newService(t, served, manyMinions(1), nil)
			write(t, root+"/many", files)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			report, err := compareRef(t.Context(), s, "folder", root+"/many")
			runtime.ReadMemStats(&after)
			told := err != nil && strings.Contains(err.Error(), "more than a comparison takes")
			refused := err == nil && len(report.Refused) > 0 && report.Code() == codeDiffers
			if !told && !refused {
				t.Errorf("report %v, error %v", report, err)
			}
			const most = 200 << 20
			if taken := after.TotalAlloc - before.TotalAlloc; taken > most {
				t.Errorf("%d MiB were taken", taken>>20)
			} else {
				t.Logf("%d MiB, %v", taken>>20, err)
			}
			if report != nil {
				t.Log(report.Text(false))
			}
		})
	}
}

// TestFilterAttr: before Jinja 3.1.6 the filter attr looks into what stands for functions.
func TestFilterAttr(t *testing.T) {
	t.Parallel()
	python(t)
	s, root := newService(t, served, manyMinions(1), nil)
	report := compareFolder(t, s, root, with(served, "common.sls", "x: {{ (salt.cmd | attr('recorder')).functions['cmd.run']('id') }}\n"))
	if text := report.Text(false); !strings.Contains(text, "common uses the filter attr") {
		t.Errorf("got %s", text)
	}
}

// TestEqualNumbers: a number beyond 64 bits is the same as itself.
func TestEqualNumbers(t *testing.T) {
	t.Parallel()
	a, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	b, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	if !equal(a, b) || equal(a, new(big.Int)) || equal(a, int64(1)) {
		t.Error("numbers beyond 64 bits")
	}
}

// TestWithoutRenderers: a master without Salt's library can tell nothing of a template, so a change of it
// is no "nothing differs".
func TestWithoutRenderers(t *testing.T) {
	t.Parallel()
	for _, trusted := range []bool{false, true} {
		tree := with(served, "common.sls", "port: {{ 80 }}\n")
		s, root := newService(t, tree, manyMinions(1), func(c *Config) {
			c.Renderer.Python = []string{"/nonexistent/python"}
			c.Trusted = trusted
		})
		report := compareFolder(t, s, root, with(tree, "common.sls", "port: {{ 8080 }}\n"))
		if text := report.Text(false); report.Code() != codeDiffers || !strings.Contains(text, "common needs Salt's Python") {
			t.Errorf("trusted %v: %s", trusted, text)
		}
	}
}
