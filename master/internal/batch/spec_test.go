package batch

import (
	"math"
	"testing"
	"time"

	"saltern/master/value"
)

func TestSizeOf(t *testing.T) {
	for _, c := range []struct {
		spec string
		n    int
		want int // 0: refused
	}{
		{"10", 3, 10},
		{"1", 3, 1},
		{"10%", 2000, 200},
		{"10%", 3, 1},
		{"0.5%", 1000, 5},
		{"100%", 7, 7},
		{"", 7, 0},
		{"0", 7, 0},
		{"-1", 7, 0},
		{"0%", 7, 0},
		{"101%", 7, 0},
		{"NaN%", 7, 0},
		{"Inf%", 7, 0},
		{"1e99", 7, 0},
		{"99999999999999999999", 7, 0},
		{"ten", 7, 0},
		{"%", 7, 0},
		{"5%%", 7, 0},
	} {
		got, err := SizeOf(c.spec, c.n)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%q of %d: %d, %v", c.spec, c.n, got, err)
		}
	}
}

func TestReadSpec(t *testing.T) {
	want := Spec{
		Size:       "25%",
		Wait:       5 * time.Second,
		Failhard:   true,
		Timeout:    time.Minute,
		LateGoesOn: true,
		Ping:       1500 * time.Millisecond,
	}
	if got, err := ReadSpec(want.Map()); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ReadSpec(value.NewMap("size", "3")); err != nil || got.Timeout != defaultTimeout || got.Wait != 0 {
		t.Errorf("the defaults: %+v, %v", got, err)
	}
	for name, m := range map[string]*value.Map{
		"nothing":            nil,
		"no size":            value.NewMap(),
		"a negative wait":    value.NewMap("size", "1", "wait", int64(-1)),
		"two days":           value.NewMap("size", "1", "timeout", int64(48*3600)),
		"no number":          value.NewMap("size", "1", "timeout", "soon"),
		"not a number":       value.NewMap("size", "1", "wait", math.NaN()),
		"for ever":           value.NewMap("size", "1", "wait", math.Inf(1)),
		"a list of failhard": value.NewMap("size", "1", "failhard", []any{}),
	} {
		if got, err := ReadSpec(m); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSlicesHaveJobFields: each slice has the fields that the tool was given for the job, and no others.
func TestSlicesHaveJobFields(t *testing.T) {
	why := value.NewMap("why", "audit")
	b := driven{kept: value.NewMap("fun", "test.ping", JobFieldsKey, value.NewMap("metadata", why, "nocache", true))}
	if got := value.Repr(b.nextLoad(jid, []string{"a"}).Map("kwargs")); got != "{'metadata': {'why': 'audit'}}" {
		t.Errorf("a slice has %s", got)
	}
}
