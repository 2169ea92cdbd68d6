package oci

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Media types of the specification (media-types.md).
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// refName is the annotation by which a layout names an image (annotations.md).
const refName = "org.opencontainers.image.ref.name"

// Image is a named image with a variant for each architecture.
type Image struct {
	Ref       string            // the name in the layout, such as 1.2.3
	Created   time.Time         // time of everything inside
	Labels    map[string]string // labels of the image and its manifests
	Config    Config
	Platforms []Platform
}

// Platform is the image for one architecture.
type Platform struct {
	Architecture string    // name in Go and in the format: amd64, arm64
	Layers       [][]Entry // the lowest layer first
}

// Config says how to start a container of the image (config.md).
type Config struct {
	User         string              `json:"User,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	Volumes      map[string]struct{} `json:"Volumes,omitempty"`
	WorkingDir   string              `json:"WorkingDir,omitempty"`
	Labels       map[string]string   `json:"Labels,omitempty"`
	StopSignal   string              `json:"StopSignal,omitempty"`
}

// descriptor names a blob (descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        *descriptor       `json:"config,omitempty"`
	Layers        []descriptor      `json:"layers,omitempty"`
	Manifests     []descriptor      `json:"manifests,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// Write creates the layout of an image in dir, which must be empty or absent.
func Write(dir string, img Image) error {
	if len(img.Platforms) == 0 || img.Ref == "" {
		return errors.New("oci: an image needs a name and a kind of machine")
	}

	old, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("oci: %w", err)
	}
	if len(old) > 0 {
		return fmt.Errorf("oci: %s is not empty; remove it or name another folder", dir)
	}

	l := layout{blobs: filepath.Join(dir, "blobs", "sha256"), image: img}
	if err := os.MkdirAll(l.blobs, 0o755); err != nil {
		return fmt.Errorf("oci: %w", err)
	}

	all := manifest{SchemaVersion: 2, MediaType: mediaIndex, Annotations: img.Labels}
	for _, p := range img.Platforms {
		d, err := l.platform(p)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, d)
	}

	// The layout's index refers to one index of all architectures. So the image's name leads a
	// reader to the variant for its architecture.
	named, err := l.writeJSON(mediaIndex, all)
	if err != nil {
		return err
	}

	named.Annotations = map[string]string{refName: img.Ref}
	top, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{named}})
	if err != nil {
		return fmt.Errorf("oci: %w", err)
	}

	err = errors.Join(os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644),
		os.WriteFile(filepath.Join(dir, "index.json"), top, 0o644))
	if err != nil {
		return fmt.Errorf("oci: %w", err)
	}

	return nil
}

// layout is a layout that is being written.
type layout struct {
	blobs string
	image Image
}

// platform writes the blobs of the image for one architecture, and returns the descriptor of its
// manifest.
func (l layout) platform(p Platform) (descriptor, error) {
	var layers []descriptor
	var diffIDs []string
	var history []map[string]any
	at := l.image.Created.UTC()
	for _, entries := range p.Layers {
		diffID := ""
		d, err := l.writeBlob(mediaLayer, func(w io.Writer) (err error) {
			diffID, err = writeLayer(w, entries, at)
			return err
		})
		if err != nil {
			return descriptor{}, err
		}

		layers, diffIDs = append(layers, d), append(diffIDs, diffID)
		history = append(history, map[string]any{"created": at, "created_by": "saltern-image oci"})
	}

	c := l.image.Config
	c.Labels = maps.Clone(l.image.Labels)
	config, err := l.writeJSON(mediaConfig, map[string]any{
		"architecture": p.Architecture, "os": "linux", "created": at, "config": c, "history": history,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	if err != nil {
		return descriptor{}, err
	}

	d, err := l.writeJSON(mediaManifest, manifest{
		SchemaVersion: 2,
		MediaType:     mediaManifest,
		Config:        &config,
		Layers:        layers,
		Annotations:   l.image.Labels,
	})

	d.Platform = &platform{Architecture: p.Architecture, OS: "linux"}
	return d, err
}

func (l layout) writeJSON(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, fmt.Errorf("oci: %w", err)
	}
	return l.writeBlob(mediaType, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// writeBlob stores the bytes that write produces as a blob, named by its digest, and returns the
// descriptor of the blob.
func (l layout) writeBlob(mediaType string, write func(io.Writer) error) (descriptor, error) {
	f, err := os.CreateTemp(l.blobs, "new-")
	if err != nil {
		return descriptor{}, fmt.Errorf("oci: %w", err)
	}
	defer os.Remove(f.Name()) // after the rename it no longer exists

	sum := sha256.New()
	err = write(io.MultiWriter(f, sum))
	size, seekErr := f.Seek(0, io.SeekCurrent)
	if err := errors.Join(err, seekErr, f.Chmod(0o644), f.Close()); err != nil {
		return descriptor{}, err
	}

	d := descriptor{MediaType: mediaType, Digest: digest(sum), Size: size}
	if err := os.Rename(f.Name(), filepath.Join(l.blobs, strings.TrimPrefix(d.Digest, "sha256:"))); err != nil {
		return descriptor{}, fmt.Errorf("oci: %w", err)
	}

	return d, nil
}
