package probe

import (
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"saltern/supervisor/keyuse"
)

// TestLookAtMachine: facts are read where they are, and what says nothing is missing.
func TestLookAtMachine(t *testing.T) {
	const uuid = "564d1234-0000-4000-8000-000000000001"
	for _, row := range []struct {
		name  string
		files map[string]string
		want  Machine
	}{
		{"nothing", nil, Machine{}},
		{"all", map[string]string{"etc/machine-id": "abc\n", "sys/class/dmi/id/product_uuid": uuid + "\n"},
			Machine{keyuse.MachineID: "abc", keyuse.Board: uuid}},
		{"the first boot", map[string]string{"etc/machine-id": "uninitialized\n"}, Machine{}},
		{"firmware that was given none",
			map[string]string{"sys/class/dmi/id/product_uuid": "00000000-0000-0000-0000-000000000000\n"},
			Machine{}},
		{"in capitals",
			map[string]string{"sys/class/dmi/id/product_uuid": "564D1234-0000-4000-8000-000000000001"},
			Machine{keyuse.Board: uuid}},
		{"no text", map[string]string{"etc/machine-id": "", "sys/class/dmi/id/product_uuid": "\x00\x00"}, Machine{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range row.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			got := LookAtMachine(root, t.TempDir(), "192.0.2.1")
			if !maps.Equal(got, row.want) {
				t.Errorf("%v, want %v", got, row.want)
			}

			if err := got.Facts("certificate").Check(); err != nil {
				t.Error(err)
			}
		})
	}

	if real := LookAtMachine("/", t.TempDir(), "127.0.0.1"); real.Facts("a").Check() != nil ||
		maps.Equal(real.Facts("a"), real.Facts("b")) && len(real) > 0 {
		t.Errorf("%v", real)
	}
}

// TestHasAddress: addresses of interfaces, and all of the loopback network, are this
// machine's; others are not, and what is no address is an error.
func TestHasAddress(t *testing.T) {
	own := map[string]bool{
		"127.0.0.1":        true,
		"127.9.8.7":        true,
		"::ffff:127.0.0.1": true,
		"192.0.2.77":       false,
		"2001:db8::77":     false,
		"128.0.0.1":        false,
	}

	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}

	for _, a := range list {
		own[addressOf(a).Addr().String()] = true
	}

	for address, want := range own {
		if got, err := HasAddress(address); err != nil || got != want {
			t.Errorf("%s: %t, want %t: %v", address, got, want, err)
		}
	}

	if _, err := HasAddress("n3"); err == nil {
		t.Error("a name is taken")
	}
}

// TestStrangerIn: the address that is asked for to announce another one is a machine's.
func TestStrangerIn(t *testing.T) {
	for _, network := range []string{"10.0.0.0/30", "10.1.2.0/24", "172.16.0.0/12", "10.0.0.0/8"} {
		p := netip.MustParsePrefix(network)
		own := p.Addr().Next()
		for range 200 {
			a := randomAddress(p, own)
			if !p.Contains(a) || a == own || a == p.Addr() || !p.Contains(a.Next()) {
				t.Fatalf("%s for %s of %s", a, own, p)
			}
		}
	}
}

// TestAnnounce: in networks without a further address, and for IPv6, nothing is done.
func TestAnnounce(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1", "2001:db8::1", "192.0.2.77"} {
		if err := Announce(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if Announce("n3") == nil {
		t.Error("a name is taken")
	}
}

// TestSerialOfEveryMachine: a serial number that QEMU gives each machine says nothing about this one: with it
// the copy of a machine had as much in common with its original as not (F5).
func TestSerialOfEveryMachine(t *testing.T) {
	for serial, everyones := range map[string]bool{
		"QM00001": true,
		"t10.ATA     QEMU HARDDISK                           QM00013": true,
		"drive-scsi0": true,
		"t10.QEMU    QEMU HARDDISK   drive-scsi12": true,
		"S3Z2NB0K123456":              false,
		"naa.600508b1001c4d5aQM00001": false,
		"eui.0025385b71b0a1c2":        false,
		"WD-QM000012":                 false,
		"":                            false,
	} {
		if got := everyonesSerial.MatchString(serial); got != everyones {
			t.Errorf("%q: %t", serial, got)
		}
	}

	known := keyuse.Facts{keyuse.MachineID: "1", keyuse.Board: "2", keyuse.Cards: "3"}
	clone := keyuse.Facts{keyuse.MachineID: "1", keyuse.Board: "4", keyuse.Cards: "5"}
	if got := clone.Compare(known); got != keyuse.Other {
		t.Errorf("a copy with another board and card is %s", got)
	}
}
