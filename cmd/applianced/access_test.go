package main

import "testing"

// TestKeyFinger compares with ssh-keygen -l.
func TestKeyFinger(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm ops@example"
	if got := keyFinger(key); got != "SHA256:r0jjAatH+rPa97KMRB4yEkCq0GlcmkYyacWqmoyiTwI" {
		t.Errorf("%s", got)
	}
	for _, bad := range []string{"", "ssh-ed25519", "ssh-ed25519 !!"} {
		if got := keyFinger(bad); got != "" {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
