package upgrade

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"testing"

	"saltern/image/grubenv"
)

// TestFinding21Downgrade: a bundle that was signed long ago does not bring an
// old version back, unless somebody asks for it.
func TestFinding21Downgrade(t *testing.T) {
	b, key := version(t, "cloud") // 2, of 2025-06-15T15:06:40Z
	for name, c := range map[string]struct {
		release string
		refused bool
	}{
		"built later":              {"IMAGE_VERSION=1\nIMAGE_CREATED=2025-06-15T15:06:41Z\n", true},
		"built before":             {"IMAGE_VERSION=3\nIMAGE_CREATED=2025-06-15T15:06:39Z\n", false},
		"same":                     {"IMAGE_VERSION=2\nIMAGE_CREATED=2025-06-15T15:06:40Z\n", false},
		"same time, higher":        {"IMAGE_VERSION=2.0.1\nIMAGE_CREATED=2025-06-15T15:06:40Z\n", true},
		"time not known, higher":   {"IMAGE_VERSION=10\n", true},
		"time not known, lower":    {"IMAGE_VERSION=1.9\n", false},
		"without numbers":          {"IMAGE_VERSION=dev\n", false},
		"nothing is said about it": {"", false},
	} {
		s := machine(t, "saltern.slot=a", grubenv.Env{"slot": "a"})
		if err := os.WriteFile(s.Release, []byte("VARIANT_ID=cloud\n"+c.release), 0o600); err != nil {
			t.Fatal(err)
		}

		_, err := s.Install(t.Context(), bytes.NewReader(b), []ed25519.PublicKey{key}, func(string) {})
		if errors.Is(err, errOlder) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if e := env(t, s); (e["next"] == "") != c.refused {
			t.Errorf("%s: %v", name, e)
		}

		s.Older = true
		if _, err := s.Install(t.Context(), bytes.NewReader(b), []ed25519.PublicKey{key}, func(string) {}); err != nil {
			t.Errorf("%s, asked for: %v", name, err)
		}
	}
}

func TestLower(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1.9", "1.10", true},
		{"1.10", "1.9", false},
		{"v1", "1.0.0", false},
		{"1.0", "1.0.1", true},
		{"2-rc1", "10", true},
		{"dev", "1", false},
		{"1", "dev", false},
		{"01", "1", false},
		{"1c0ffee", "9f7cc91", false},
		{"3013961-dirty", "9999999", false},
		{"3013961aa001", "9f7cc912aa00", false},
		{"20261001", "20261101", true},
	} {
		if got := lower(c.a, c.b); got != c.want {
			t.Errorf("lower(%s, %s) = %v", c.a, c.b, got)
		}
	}
}
