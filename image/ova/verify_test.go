package ova

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// verify reads an archive as a deploying program would: the descriptor is
// first, every file has the digest of the manifest, the descriptor's disk is
// there with its size.
func verify(r io.Reader) (Content, error) {
	var c Content
	t := tar.NewReader(r)
	sums, sizes := map[string]string{}, map[string]int64{}
	var ovf, manifest []byte
	for i := 0; ; i++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c, fmt.Errorf("ova: %w", err)
		}
		if i == 0 && !strings.HasSuffix(h.Name, ".ovf") {
			return c, fmt.Errorf("ova: the descriptor must be first, not %s", h.Name)
		}

		sum := sha256.New()
		var keep bytes.Buffer
		var w io.Writer = sum
		if strings.HasSuffix(h.Name, ".ovf") || strings.HasSuffix(h.Name, ".mf") {
			if h.Size > 1<<20 {
				return c, fmt.Errorf("ova: %s has %d bytes", h.Name, h.Size)
			}
			w = io.MultiWriter(sum, &keep)
		}

		if _, err := io.Copy(w, t); err != nil {
			return c, fmt.Errorf("ova: %w", err)
		}

		switch {
		case strings.HasSuffix(h.Name, ".ovf"):
			ovf = keep.Bytes()
		case strings.HasSuffix(h.Name, ".mf"):
			manifest = keep.Bytes()
			continue
		}

		sums[h.Name], sizes[h.Name] = hex.EncodeToString(sum.Sum(nil)), h.Size
	}

	for name, sum := range sums {
		if !strings.Contains(string(manifest), "SHA256("+name+")= "+sum+"\n") {
			return c, fmt.Errorf("ova: %s is not what the manifest says", name)
		}
	}

	var e descriptor
	if err := xml.Unmarshal(ovf, &e); err != nil {
		return c, fmt.Errorf("ova: descriptor: %w", err)
	}

	if size, ok := sizes[e.File.Href]; !ok || size != e.File.Size ||
		e.System.Hardware.Transport != "com.vmware.guestInfo" {
		return c, fmt.Errorf("ova: the descriptor's disk %q is not there as it says", e.File.Href)
	}

	c = Content{Name: e.System.ID, Disk: e.File.Href}
	for _, d := range e.Disks {
		if d.File != "" {
			c.Capacity, c.Populated = d.Capacity, d.Populated
		}
	}

	for _, p := range e.System.Product.Properties {
		c.Properties = append(c.Properties, e.System.Product.Class+"."+p.Key)
	}

	return c, nil
}

// Content is what an archive says of itself.
type Content struct {
	Name       string
	Disk       string
	Capacity   int64    // bytes of the disk with the system
	Populated  int64    // of these, those that are not zero
	Properties []string // as the guest will see them
}

// descriptor is what Verify reads of a descriptor.
type descriptor struct {
	File struct {
		Href string `xml:"href,attr"`
		Size int64  `xml:"size,attr"`
	} `xml:"References>File"`
	Disks []struct {
		Capacity  int64  `xml:"capacity,attr"`
		Populated int64  `xml:"populatedSize,attr"`
		File      string `xml:"fileRef,attr"`
	} `xml:"DiskSection>Disk"`
	System struct {
		ID       string `xml:"id,attr"`
		Hardware struct {
			Transport string `xml:"transport,attr"`
		} `xml:"VirtualHardwareSection"`
		Product struct {
			Class      string `xml:"class,attr"`
			Properties []struct {
				Key string `xml:"key,attr"`
			} `xml:"Property"`
		} `xml:"ProductSection"`
	} `xml:"VirtualSystem"`
}
