package terraform

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

const dir = "../../examples/terraform"

// module is the text of a Terraform module.
type module struct {
	blocks []*hclsyntax.Block
	names  map[string]bool // var.x, local.x, aws_lb.x, data.aws_subnet.x
	locals map[string]hclsyntax.Expression
}

func read(t *testing.T) module {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.tf")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v %v", files, err)
	}

	m := module{names: map[string]bool{}, locals: map[string]hclsyntax.Expression{}}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		f, faults := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
		if faults.HasErrors() {
			t.Fatal(faults)
		}

		m.blocks = append(m.blocks, f.Body.(*hclsyntax.Body).Blocks...)
	}

	for _, b := range m.blocks {
		name := strings.Join(b.Labels, ".")
		switch b.Type {
		case "variable":
			name = "var." + name
		case "data":
			name = "data." + name
		case "locals":
			for _, a := range b.Body.Attributes {
				m.locals[a.Name], m.names["local."+a.Name] = a.Expr, true
			}
			continue
		case "output", "terraform":
			continue
		}

		if m.names[name] {
			t.Errorf("%s is there twice", name)
		}

		m.names[name] = true
	}

	return m
}

// uses gives every name that a body refers to, with one place of it.
func uses(b *hclsyntax.Body, into map[string]hcl.Range) {
	for _, a := range b.Attributes {
		for _, v := range a.Expr.Variables() {
			if name := spelled(v); name != "" {
				into[name] = v.SourceRange()
			}
		}
	}
	for _, inner := range b.Blocks {
		uses(inner.Body, into)
	}
}

// spelled gives the name that a reference begins with, "" for what every module has
// and what is bound in place.
func spelled(v hcl.Traversal) string {
	words := []string{v.RootName()}
	for _, step := range v[1:] {
		if a, ok := step.(hcl.TraverseAttr); ok {
			words = append(words, a.Name)
			continue
		}
		break
	}

	switch {
	case words[0] == "each", words[0] == "count", words[0] == "path", len(words) < 2:
		return ""
	case words[0] == "data":
		return strings.Join(words[:min(3, len(words))], ".")
	}

	return strings.Join(words[:2], ".")
}

// TestNames: what is used is declared, and what is declared is used.
func TestNames(t *testing.T) {
	m := read(t)
	used := map[string]hcl.Range{}
	for _, b := range m.blocks {
		inside := map[string]hcl.Range{}
		uses(b.Body, inside)
		for name, at := range inside {
			if b.Type == "variable" && name == "var."+b.Labels[0] {
				continue // its own validation
			}
			used[name] = at
		}
	}

	for name, at := range used {
		if !m.names[name] && !bound(name) {
			t.Errorf("%s: %s is not declared", at, name)
		}
	}

	for name := range m.names {
		if _, ok := used[name]; !ok && (strings.HasPrefix(name, "var.") || strings.HasPrefix(name, "local.")) {
			t.Errorf("%s is not used", name)
		}
	}
}

// bound reports whether a name is one of a for expression of the module.
func bound(name string) bool {
	return strings.HasPrefix(name, "rule.") || strings.HasPrefix(name, "p.")
}

// TestDescribed: each variable and output says what it is, each variable its type.
func TestDescribed(t *testing.T) {
	for _, b := range read(t).blocks {
		if b.Type != "variable" && b.Type != "output" {
			continue
		}
		if b.Body.Attributes["description"] == nil || b.Type == "variable" && b.Body.Attributes["type"] == nil {
			t.Errorf("%s %s: no description or type", b.Type, b.Labels[0])
		}
	}
}

// TestFormat: Terraform reads the files, and finds them in its form.
func TestFormat(t *testing.T) {
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("NOT TESTED: terraform is not installed")
	}
	cmd := exec.Command("terraform", "fmt", "-check", "-diff", dir)
	cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("terraform fmt: %v\n%s", err, out)
	}
}
