package settings

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Whoever reads the manual must find every key of appliance.yaml, and every
// master option that the appliance keeps to itself.
func TestManualListsKeys(t *testing.T) {
	b, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := yamlKeys(reflect.TypeFor[Settings](), "")
	if len(keys) < 25 {
		t.Fatalf("only %d keys found", len(keys))
	}
	for _, k := range slices.Concat(keys, managed(), managedInCluster(), Insecure()) {
		if !strings.Contains(string(b), "`"+k+"`") {
			t.Errorf("docs/configuration.md does not list %s", k)
		}
	}
}

func yamlKeys(typ reflect.Type, prefix string) []string {
	var out []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		key := prefix + f.Tag.Get("yaml")
		if f.Tag.Get("yaml") == "-" {
			continue
		}
		if f.Type.Kind() == reflect.Struct {
			out = append(out, yamlKeys(f.Type, key+".")...)
			continue
		}

		out = append(out, key)
	}

	return out
}
