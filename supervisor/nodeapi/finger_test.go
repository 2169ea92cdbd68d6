package nodeapi

import "testing"

// TestFinger compares with what Salt 3008.3 prints for the same public key
// (salt.utils.crypt.pem_finger).
func TestFinger(t *testing.T) {
	k := &ClusterKey{Public: "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\nAQIDBAUGBwg=\n-----END PUBLIC KEY-----\n"}
	if got := k.Finger(); got != "78:62:88:f1:86:3b:c9:6d:28:d2:56:74:50:2a:2b:00:2d:cb:d7:7d:ba:85:18:e4:2a:ec:38:2f:f8:88:ff:10" {
		t.Errorf("%s", got)
	}
}
