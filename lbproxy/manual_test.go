package lbproxy

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Whoever reads the manual must find every key of the configuration file.
func TestManualListsKeys(t *testing.T) {
	b, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := yamlKeys(reflect.TypeFor[Config](), "")
	if len(keys) < 50 {
		t.Fatalf("only %d keys found", len(keys))
	}
	for _, k := range keys {
		if !strings.Contains(string(b), "`"+k+"`") {
			t.Errorf("docs/configuration.md does not list %s", k)
		}
	}
}

func yamlKeys(typ reflect.Type, prefix string) []string {
	var out []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		inner := f.Type
		key = prefix + key
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct &&
			inner.Elem().PkgPath() == typ.PkgPath() {
			inner, key = inner.Elem(), key+"[]"
		}

		if inner.Kind() == reflect.Struct && inner.PkgPath() == typ.PkgPath() {
			out = append(out, yamlKeys(inner, key+".")...)
			continue
		}

		out = append(out, key)
	}

	return out
}
