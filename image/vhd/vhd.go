// Package vhd converts a raw disk to a fixed virtual hard disk for Azure and Hyper-V: the disk
// itself and a footer of 512 bytes. The format is defined by Microsoft's Virtual Hard Disk Image
// Format Specification 1.0. Azure also requires a size that is a multiple of 1 MiB. qemu-img is no
// alternative: it writes a random number and the present time.
package vhd

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"
)

const (
	mib        = 1 << 20
	sector     = 512
	footerSize = 512
	fixed      = 2 // type of a fixed disk
)

// Build converts the raw disk raw to the fixed disk out, with holes where the disk is zero. The
// footer holds name and epoch, so the same input gives the same bytes.
func Build(out, raw, name string, epoch time.Time) (err error) {
	in, err := os.Open(raw)
	if err != nil {
		return fmt.Errorf("vhd: %w", err)
	}
	defer in.Close()

	fi, err := in.Stat()
	if err != nil {
		return fmt.Errorf("vhd: %w", err)
	}
	if fi.Size() == 0 || fi.Size()%mib != 0 {
		return fmt.Errorf("vhd: %s has %d bytes, which is no whole number of MiB", raw, fi.Size())
	}

	part := out + ".part"
	f, err := os.Create(part)
	if err != nil {
		return fmt.Errorf("vhd: %w", err)
	}
	defer os.Remove(part) // after the rename it no longer exists

	err = copySparse(f, in)
	if err == nil {
		_, err = f.WriteAt(footer(fi.Size(), name, epoch), fi.Size())
	}

	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, out)
	}

	if err != nil {
		return fmt.Errorf("vhd: %w", err)
	}

	return nil
}

// copySparse copies each MiB that is not all zero to its place.
func copySparse(out io.WriterAt, in io.Reader) error {
	block, zero := make([]byte, mib), make([]byte, mib)
	for at := int64(0); ; at += mib {
		_, err := io.ReadFull(in, block)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if string(block) == string(zero) {
			continue
		}

		if _, err := out.WriteAt(block, at); err != nil {
			return err
		}
	}
}

// began is the time from which the footer counts seconds.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func footer(size int64, name string, epoch time.Time) []byte {
	b := make([]byte, footerSize)
	order := binary.BigEndian
	copy(b, "conectix")
	order.PutUint32(b[8:], 2)               // features: the reserved bit, which is always set
	order.PutUint32(b[12:], 0x00010000)     // version of the format
	order.PutUint64(b[16:], math.MaxUint64) // a fixed disk has no header
	order.PutUint32(b[24:], uint32(max(0, epoch.Unix()-began.Unix())))
	copy(b[28:], "qem2") // makes QEMU use the size instead of the geometry
	order.PutUint32(b[32:], 0x00010000)
	copy(b[36:], "Wi2k")
	order.PutUint64(b[40:], uint64(size))
	order.PutUint64(b[48:], uint64(size))
	cylinders, heads, sectors := geometry(size)
	order.PutUint16(b[56:], uint16(cylinders))
	b[58], b[59] = byte(heads), byte(sectors)
	order.PutUint32(b[60:], fixed)
	id := sha256.Sum256([]byte(name))
	copy(b[68:84], id[:])
	var sum uint32
	for _, c := range b {
		sum += uint32(c)
	}

	order.PutUint32(b[64:], ^sum)
	return b
}

// geometry returns the cylinders, heads and sectors per track of a disk, as in the appendix "CHS
// Calculation" of the specification.
func geometry(size int64) (cylinders, heads, sectors int64) {
	total := min(size/sector, 65535*16*255)
	if total >= 65535*16*63 {
		return total / (16 * 255), 16, 255
	}

	sectors = 17
	by := total / sectors
	heads = max(4, (by+1023)/1024)
	if by >= heads*1024 || heads > 16 {
		sectors, heads = 31, 16
		by = total / sectors
	}

	if by >= heads*1024 {
		sectors, heads = 63, 16
		by = total / sectors
	}

	return by / heads, heads, sectors
}
