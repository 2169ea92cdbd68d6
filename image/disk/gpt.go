package disk

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"unicode/utf16"
)

// Sector is the size of a logical block in bytes.
const Sector = 512

// Numbers of UEFI 2.10, chapter 5.3.
const (
	gptEntries   = 128
	gptEntrySize = 128
	gptTable     = gptEntries * gptEntrySize / Sector // sectors of one copy of the table
	gptFirst     = 2 + gptTable                       // first usable sector
)

// GUID is a globally unique identifier, in the byte order of its text.
type GUID [16]byte

// Types of partitions.
var (
	typeBIOS = mustGUID("21686148-6449-6E6F-744E-656564454649")
	typeESP  = mustGUID("C12A7328-F81F-11D2-BA4B-00A0C93EC93B")
	typeRoot = mustGUID("4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709")
	typeVar  = mustGUID("4D21B016-B534-45C2-A9FB-5C16E091FD2D")
)

// nameGUID returns an identifier derived from a name (RFC 9562, version 5, in our name space), so
// that two builds use the same identifier.
func nameGUID(name string) GUID {
	space := mustGUID("9B7E1D64-3C5A-4F0B-8A4E-5A17E2D0C0DE")
	sum := sha1.Sum(append(space[:], name...))
	var g GUID
	copy(g[:], sum[:])
	g[6] = g[6]&0x0f | 0x50
	g[8] = g[8]&0x3f | 0x80
	return g
}

func mustGUID(s string) GUID {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != 16 {
		panic("disk: bad identifier " + s)
	}
	return GUID(b)
}

// String returns the usual text form, in lower case.
func (g GUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", g[:4], g[4:6], g[6:8], g[8:10], g[10:])
}

// diskOrder returns the bytes in the order of the disk: the first three fields are little-endian.
func (g GUID) diskOrder() [16]byte {
	return [16]byte{g[3], g[2], g[1], g[0], g[5], g[4], g[7], g[6], g[8], g[9], g[10], g[11], g[12], g[13],
		g[14], g[15]}
}

// Partition is one entry of the table, in sectors.
type Partition struct {
	Name         string
	Type, ID     GUID
	First, Count uint64
}

// writeGPT writes a protective MBR and both copies of the partition table to a disk. sectors is the
// disk's size. writeGPT does not change the first 440 bytes of the MBR.
func writeGPT(w io.WriterAt, sectors uint64, id GUID, parts []Partition) error {
	if sectors < 2*gptFirst || len(parts) > gptEntries {
		return errors.New("disk: too small, or too many partitions")
	}

	table := make([]byte, gptEntries*gptEntrySize)
	last := sectors - gptTable - 2 // last usable sector
	at := uint64(gptFirst)
	for i, p := range parts {
		name := utf16.Encode([]rune(p.Name))
		if p.First < at || p.Count == 0 || p.First+p.Count-1 > last || len(name) > 36 {
			return fmt.Errorf("disk: partition %s does not fit", p.Name)
		}

		at = p.First + p.Count
		e := table[i*gptEntrySize:][:gptEntrySize]
		kind, own := p.Type.diskOrder(), p.ID.diskOrder()
		copy(e, kind[:])
		copy(e[16:], own[:])
		binary.LittleEndian.PutUint64(e[32:], p.First)
		binary.LittleEndian.PutUint64(e[40:], at-1)

		for j, c := range name {
			binary.LittleEndian.PutUint16(e[56+2*j:], c)
		}
	}

	header := func(own, other, entries uint64) []byte {
		h := make([]byte, Sector)
		copy(h, "EFI PART")
		put := binary.LittleEndian
		put.PutUint32(h[8:], 0x00010000)
		put.PutUint32(h[12:], 92)
		put.PutUint64(h[24:], own)
		put.PutUint64(h[32:], other)
		put.PutUint64(h[40:], gptFirst)
		put.PutUint64(h[48:], last)
		disk := id.diskOrder()
		copy(h[56:], disk[:])
		put.PutUint64(h[72:], entries)
		put.PutUint32(h[80:], gptEntries)
		put.PutUint32(h[84:], gptEntrySize)
		put.PutUint32(h[88:], crc32.ChecksumIEEE(table))
		put.PutUint32(h[16:], crc32.ChecksumIEEE(h[:92]))

		return h
	}

	mbr := make([]byte, Sector-446)
	copy(mbr, []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	binary.LittleEndian.PutUint32(mbr[12:], uint32(min(sectors-1, 0xffffffff)))
	mbr[64], mbr[65] = 0x55, 0xaa
	var err error
	write := func(b []byte, sector uint64) {
		_, e := w.WriteAt(b, int64(sector*Sector))
		err = errors.Join(err, e)
	}

	_, err = w.WriteAt(mbr, 446)
	write(header(1, sectors-1, 2), 1)
	write(table, 2)
	write(table, sectors-1-gptTable)
	write(header(sectors-1, 1, sectors-1-gptTable), sectors-1)

	return err
}
