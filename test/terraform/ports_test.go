package terraform

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"saltern/image/profile"
	"saltern/supervisor/settings"
)

// portRange is "4505" or "49152-60999".
func portRange(from, to int64) []string {
	if to-from > 100 {
		return []string{fmt.Sprintf("%d-%d", from, to)}
	}
	var out []string
	for p := from; p <= to; p++ {
		out = append(out, fmt.Sprint(p))
	}
	return out
}

// rules gives the ports of a local with rules.
func (m module) rules(t *testing.T, local string) []string {
	t.Helper()
	object, ok := m.locals[local].(*hclsyntax.ObjectConsExpr)
	if !ok {
		t.Fatalf("local.%s is no map", local)
	}

	var out []string
	for _, item := range object.Items {
		rule, ok := item.ValueExpr.(*hclsyntax.ObjectConsExpr)
		if !ok {
			t.Fatalf("%s: no rule", item.ValueExpr.Range())
		}

		ends := map[string]int64{}
		for _, f := range rule.Items {
			key := hcl.ExprAsKeyword(f.KeyExpr.(*hclsyntax.ObjectConsKeyExpr).Wrapped)
			if key != "from" && key != "to" {
				continue
			}

			v, faults := f.ValueExpr.Value(nil)
			if faults.HasErrors() || v.Type() != cty.Number {
				t.Fatalf("%s: %v", f.ValueExpr.Range(), faults)
			}

			ends[key], _ = v.AsBigFloat().Int64()
		}

		out = append(out, portRange(ends["from"], ends["to"])...)
	}

	slices.Sort(out)
	return out
}

var accepted = regexp.MustCompile(`tcp dport (?:\{ ([^}]+) \}|(\d+)) accept`)

// firewall gives the ports that a chain of the image's firewall accepts.
func firewall(t *testing.T, chain string) []string {
	t.Helper()
	files, err := profile.Overlay()
	if err != nil {
		t.Fatal(err)
	}

	i := slices.IndexFunc(files, func(f profile.File) bool { return f.Path == "usr/lib/saltern/nftables.conf" })
	_, text, found := strings.Cut(string(files[i].Content), "chain "+chain+" {")
	if !found {
		t.Fatalf("the firewall has no chain %s", chain)
	}

	text, _, _ = strings.Cut(text, "\n\t}")
	var out []string
	for _, hit := range accepted.FindAllStringSubmatch(text, -1) {
		out = append(out, strings.Split(hit[1]+hit[2], ", ")...)
	}

	slices.Sort(out)
	return out
}

// TestPorts: the security groups open what the image's firewall opens, and Salt's API.
func TestPorts(t *testing.T) {
	m := read(t)
	if got, want := m.rules(t, "between"), firewall(t, "cluster"); len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("between the nodes %v, the firewall has %v", got, want)
	}
	api := fmt.Sprint(settings.Default("x").Front.APIPort)
	want := append(firewall(t, "input"), api)
	slices.Sort(want)
	if got := m.rules(t, "outside"); !slices.Equal(got, want) {
		t.Errorf("from outside %v, the firewall has %v", got, want)
	}
}
