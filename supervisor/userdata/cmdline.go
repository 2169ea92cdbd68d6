package userdata

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// commandLine reads what the boot loader gave:
//
//	saltern.answers=PATH            a file in the image or on a disk
//	saltern.answers64=BASE64        the answers themselves
//	saltern.join=JOIN-STRING        nothing else is needed
//	saltern.set=KEY:VALUE           one answer; may be repeated
//
// The command line can be read by every user of the machine, so a secret on
// it is worth less than elsewhere.
func (p Places) commandLine(context.Context) ([]byte, error) {
	b, err := os.ReadFile(p.CommandLine)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	set := map[string]any{}
	for w := range strings.FieldsSeq(string(b[:min(len(b), MaxText)])) {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "saltern.answers":
			if !filepath.IsAbs(value) {
				return nil, fmt.Errorf("saltern.answers=%.60q is not an absolute path", value)
			}
			text, err := readFile(value)
			if err == nil && text == nil {
				err = fmt.Errorf("saltern.answers=%s: there is no such file", value)
			}
			return text, err
		case "saltern.answers64":
			text, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return nil, fmt.Errorf("saltern.answers64: %w", err)
			}
			return text, nil
		case "saltern.join":
			set["join"] = value
		case "saltern.set":
			k, v, ok := strings.Cut(value, ":")
			if v, err := url.QueryUnescape(v); ok && err == nil {
				var any any
				if yaml.Unmarshal([]byte(v), &any) != nil {
					any = v
				}
				put(set, strings.Split(k, "."), any)
				continue
			}
			return nil, fmt.Errorf("saltern.set=%.60q is not KEY:VALUE", value)
		}
	}
	if len(set) == 0 {
		return nil, nil
	}
	return yaml.Marshal(set)
}

// put sets a.b.c in nested maps.
func put(m map[string]any, path []string, v any) {
	for _, k := range path[:len(path)-1] {
		next, ok := m[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[k] = next
		}
		m = next
	}
	m[path[len(path)-1]] = v
}
