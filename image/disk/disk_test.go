package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

func TestGPT(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	size := smallest()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}

	parts := layout()
	if err := writeGPT(f, uint64(size)/Sector, nameGUID("disk"), parts); err != nil {
		t.Fatal(err)
	}

	got, err := readGPT(f)
	if err != nil || !reflect.DeepEqual(got, parts) {
		t.Errorf("%v\n%+v\n%+v", err, got, parts)
	}

	if tool, err := exec.LookPath("sfdisk"); err == nil {
		out, err := exec.Command(tool, "--verify", path).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "No errors detected") {
			t.Errorf("sfdisk: %v %s", err, out)
		}
	} else {
		t.Log("sfdisk is not here: NOT COMPARED with it")
	}

	if _, err := f.WriteAt([]byte{1}, 2*Sector+40); err != nil {
		t.Fatal(err)
	}

	if _, err := readGPT(f); err == nil {
		t.Error("a damaged table was read")
	}
}

func TestGPTRefuses(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	for name, parts := range map[string][]Partition{
		"over the end": {{Name: "a", First: 2048, Count: 1 << 20}},
		"overlap":      {{Name: "a", First: 2048, Count: 100}, {Name: "b", First: 2100, Count: 100}},
		"table":        {{Name: "a", First: 2, Count: 100}},
		"empty":        {{Name: "a", First: 2048}},
		"name":         {{Name: strings.Repeat("a", 37), First: 2048, Count: 1}},
	} {
		if writeGPT(f, 1<<16, GUID{}, parts) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestGUID(t *testing.T) {
	g := mustGUID("C12A7328-F81F-11D2-BA4B-00A0C93EC93B")
	if g.String() != "c12a7328-f81f-11d2-ba4b-00a0c93ec93b" || GUID(g.diskOrder()).diskOrder() != [16]byte(g) {
		t.Errorf("%s", g)
	}
	if w := g.diskOrder(); w[0] != 0x28 || w[3] != 0xc1 || w[8] != 0xba {
		t.Errorf("on disk: %x", w)
	}
	if a, again := nameGUID("a"), nameGUID("a"); a == nameGUID("b") || a != again || a[6]>>4 != 5 {
		t.Errorf("made of names: %s %s", nameGUID("a"), nameGUID("b"))
	}
}

// TestConfig: both versions, the ladder of tries, nothing left to fill in.
func TestConfig(t *testing.T) {
	text := config(nameGUID("root-a"), nameGUID("root-b"), "extra=1")

	// The screen is as GRUB leaves it until the console is there, for most of a minute.
	if said, boots := strings.Index(text, "echo \"Starting."), strings.Index(text, "\tlinux "); said < 0 ||
		said > boots {
		t.Errorf("nothing says that the start takes a while:\n%s", text)
	}

	for _, want := range []string{nameGUID("root-a").String(), nameGUID("root-b").String(), "extra=1",
		"saltern.slot=$1", "set flag=saltern.try", "save_env"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}

	if strings.Contains(text, "@") {
		t.Errorf("left over: %s", text)
	}

	if tool, err := exec.LookPath("grub-script-check"); err == nil {
		cmd := exec.Command(tool)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("grub-script-check: %v %s", err, out)
		}
	} else {
		t.Log("grub-script-check is not here: NOT CHECKED by it")
	}
}

// TestBuild makes a whole disk of small parts, twice.
func TestBuild(t *testing.T) {
	for _, tool := range []string{"grub-mkimage", "mkfs.vfat", "mcopy", "mke2fs"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: needs %s (scripts/deps image)", tool)
		}
	}

	dir := t.TempDir()
	o := Options{Version: "1.2", Epoch: time.Unix(1750000000, 0)}
	for name, at := range map[string]*string{"root": &o.Root, "vmlinuz": &o.Kernel, "initrd": &o.Initrd} {
		*at = filepath.Join(dir, name)
		if err := os.WriteFile(*at, bytes.Repeat([]byte(name), 100000), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var disks [2][]byte
	for i := range disks {
		o.Out = filepath.Join(dir, "out")
		if err := Build(context.Background(), o); err != nil {
			t.Fatal(err)
		}

		f, err := os.Open(o.Out)
		if err != nil {
			t.Fatal(err)
		}

		parts := layout()
		disks[i] = make([]byte, int64(parts[2].First*Sector)+600000) // up to the first root's content
		if _, err := f.ReadAt(disks[i], 0); err != nil {
			t.Fatal(err)
		}

		f.Close()
		if i == 0 {
			time.Sleep(1100 * time.Millisecond) // the file systems count in seconds
		}
	}

	if !bytes.Equal(disks[0], disks[1]) {
		t.Error("not the same twice")
	}

	d := disks[0]
	parts := layout()
	if binary.LittleEndian.Uint64(d[0x5c:]) != parts[0].First || d[510] != 0x55 || d[511] != 0xaa {
		t.Errorf("boot sector: core at %d", binary.LittleEndian.Uint64(d[0x5c:]))
	}

	if !bytes.HasPrefix(d[parts[2].First*Sector:], []byte("rootroot")) {
		t.Error("root-a does not hold the root file system")
	}

	esp := filepath.Join(dir, "esp")
	if err := os.WriteFile(esp, d[parts[1].First*Sector:parts[2].First*Sector], 0o600); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{
		"::a/version":            "1.2\n",
		"::grub/grubenv":         "# GRUB Environment Block\nslot=a\n",
		"::grub/grub.cfg":        "# Saltern\n",
		"::EFI/BOOT/BOOTX64.EFI": "MZ",
	} {
		cmd := exec.Command("mtype", "-i", esp, name)
		cmd.Env = append(os.Environ(), "MTOOLS_SKIP_CHECK=1")
		out, err := cmd.Output()
		if err != nil || !bytes.HasPrefix(out, []byte(want)) {
			t.Errorf("%s: %v %.40q", name, err, out)
		}
	}

	o.Size = mib
	if Build(context.Background(), o) == nil {
		t.Error("a disk that is too small was made")
	}
}

// readGPT reads the primary table back and checks it.
func readGPT(r io.ReaderAt) ([]Partition, error) {
	h := make([]byte, Sector)
	if _, err := r.ReadAt(h, Sector); err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}

	get := binary.LittleEndian
	sum := get.Uint32(h[16:])
	check := bytes.Clone(h[:92])
	clear(check[16:20])

	if string(h[:8]) != "EFI PART" || sum != crc32.ChecksumIEEE(check) || get.Uint32(h[80:]) != gptEntries ||
		get.Uint32(h[84:]) != gptEntrySize {
		return nil, errors.New("disk: no partition table")
	}

	table := make([]byte, gptEntries*gptEntrySize)
	if _, err := r.ReadAt(table, int64(get.Uint64(h[72:])*Sector)); err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	if get.Uint32(h[88:]) != crc32.ChecksumIEEE(table) {
		return nil, errors.New("disk: the partition table is damaged")
	}

	var parts []Partition
	for i := range gptEntries {
		e := table[i*gptEntrySize:][:gptEntrySize]
		if GUID(e[:16]) == (GUID{}) {
			continue
		}

		var name []uint16
		for j := 56; j < gptEntrySize; j += 2 {
			if c := get.Uint16(e[j:]); c != 0 {
				name = append(name, c)
			}
		}

		// The order on disk is its own inverse.
		parts = append(parts,
			Partition{Name: string(utf16.Decode(name)), Type: GUID(e[:16]).diskOrder(), ID: GUID(e[16:32]).diskOrder(),
				First: get.Uint64(e[32:]), Count: get.Uint64(e[40:]) - get.Uint64(e[32:]) + 1})
	}

	return parts, nil
}
