package jobs

import (
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

func TestSuccessInJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		success any
		want    bool
	}{
		{"true", true, true},
		{"false", false, false},
		{"text", "true", false},
		{"all functions", value.NewMap("test.ping", true, "test.version", true), true},
		{"one of two", value.NewMap("test.ping", true, "test.version", false), false},
		{"in order", []any{true, true}, true},
		{"in order, one of two", []any{true, false}, false},
		{"no function", value.NewMap(), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			content, err := msgpack.Marshal(value.NewMap("return", nil, "success", tt.success), msgpack.Modern)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ReturnToJSON(content, nil)
			if err != nil || got.Success != tt.want {
				t.Errorf("%t, want %t: %v", got.Success, tt.want, err)
			}
		})
	}
}
