package value

import "testing"

func TestMap(t *testing.T) {
	m := NewMap()
	for i := range 40 {
		m.Set(i, i*i)
	}

	m.Set("k", "v")
	m.Set(7, "seven")
	if v, ok := m.GetAny(7); !ok || v != "seven" {
		t.Errorf("7 is %v", v)
	}

	m.Delete(3)
	if _, ok := m.GetAny(3); ok || m.Len() != 40 {
		t.Errorf("3 is still there, %d keys", m.Len())
	}

	c := m.Clone()
	c.Set("k", "w")
	if m.Str("k") != "v" || c.Str("k") != "w" {
		t.Error("a clone shares its entries")
	}

	var none *Map
	if none.Len() != 0 || none.Str("a") != "" || none.Map("a") != nil || none.Bool("x") {
		t.Error("a nil map is not empty")
	}

	none.Delete("a")
}
