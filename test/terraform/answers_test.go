package terraform

import (
	"os"
	"slices"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"saltern/supervisor/setup"
	"saltern/supervisor/userdata"
)

// given calls templatefile: the keys are those that the module gives.
func given(t *testing.T) []string {
	t.Helper()
	for _, b := range read(t).blocks {
		if b.Type != "resource" || b.Labels[0] != "aws_instance" {
			continue
		}

		call, ok := b.Body.Attributes["user_data"].Expr.(*hclsyntax.FunctionCallExpr)
		if !ok || call.Name != "templatefile" {
			t.Fatal("user_data is not made by templatefile")
		}

		var keys []string
		for _, item := range call.Args[1].(*hclsyntax.ObjectConsExpr).Items {
			keys = append(keys, hcl.ExprAsKeyword(item.KeyExpr.(*hclsyntax.ObjectConsKeyExpr).Wrapped))
		}

		return keys
	}

	t.Fatal("there is no instance")
	return nil
}

// TestAnswers: the template takes what the module gives, and makes answers that the
// set-up takes, with a secret and a key that have quotation marks.
func TestAnswers(t *testing.T) {
	text, err := os.ReadFile(dir + "/user-data.yaml.tftpl")
	if err != nil {
		t.Fatal(err)
	}

	template, faults := hclsyntax.ParseTemplate(text, "user-data", hcl.InitialPos)
	if faults.HasErrors() {
		t.Fatal(faults)
	}

	const key = `ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleE "my: laptop"`
	values := map[string]cty.Value{
		"cluster_id": cty.StringVal("blue"), "node": cty.StringVal("blue-1"), "address": cty.StringVal("10.0.0.11"), "peer": cty.StringVal("10.0.0.10"),
		"secret": cty.StringVal("an-unusual:secret#of-9-words"), "api": cty.True, "ssh_keys": cty.ListVal([]cty.Value{cty.StringVal(key)}), "first": cty.True,
	}

	for _, k := range given(t) {
		if _, ok := values[k]; !ok {
			t.Errorf("the module gives %s, which this test does not know", k)
		}
	}

	for name := range values {
		if !slices.Contains(given(t), name) {
			t.Errorf("the module does not give %s", name)
		}
	}

	for first, mode := range map[bool]setup.Mode{true: setup.Form, false: setup.Join} {
		values["first"] = cty.BoolVal(first)
		v, faults := template.Value(&hcl.EvalContext{
			Variables: values,
			Functions: map[string]function.Function{"jsonencode": stdlib.JSONEncodeFunc},
		})
		if faults.HasErrors() {
			t.Fatal(faults)
		}

		a, err := userdata.Parse([]byte(v.AsString()))
		if err != nil {
			t.Fatalf("%v\n%s", err, v.AsString())
		}

		if a.Mode != mode || a.Node != "blue-1" || a.Secret != "an-unusual:secret#of-9-words" || !a.API ||
			a.Storage.Kind != "volume" || !slices.Equal(a.Admin.SSHKeys, []string{key}) || (len(a.Peers) == 1) == first {
			t.Errorf("%+v", a)
		}

		if v := setup.Validate(*a, setup.Anywhere(*a), setup.Base{}); len(v.Faults) > 0 {
			t.Errorf("%s: %v", mode, setup.Faults(v.Faults))
		}
	}
}
