package userdata

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"saltern/command"

	"go.yaml.in/yaml/v3"
)

// ovfLabels are those of the disk with the OVF environment (DSP0243, "iso"
// transport).
var ovfLabels = []string{"OVF ENV", "OVF-TRANSPORT", "ovf-transport"}

// ovf reads the properties of an OVF environment.
func (p Places) ovf(ctx context.Context) ([]byte, error) {
	names := []string{"ovf-env.xml", "OVF-ENV.XML"}
	var text []byte
	var err error
	if p.OVF != "" {
		text, err = readSeed(p.OVF, names)
	}
	if text == nil && err == nil && p.Devices != "" {
		text, err = fromDisk(ctx, p.Devices, ovfLabels, names)
	}
	if text == nil || err != nil {
		return nil, err
	}
	return ParseOVF(text)
}

// ParseOVF makes answers of the properties whose key begins with "saltern.":
// saltern.answers holds all of them, in base64 or plain; any other one is an
// answer by its name. A nested answer is spelled with an underscore or a dot:
// saltern.network_address or saltern.network.address. Empty properties, and a
// data disk alone, which the descriptor fills in, are no answers.
func ParseOVF(text []byte) ([]byte, error) {
	set := map[string]any{}
	dec := xml.NewDecoder(bytes.NewReader(text))
	for depth := 0; ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("ovf-env.xml: %w", err)
		}
		switch e := tok.(type) {
		case xml.EndElement:
			depth--
		case xml.StartElement:
			if depth++; depth > 32 {
				return nil, errors.New("ovf-env.xml: nested too deeply")
			}
			if e.Name.Local != "Property" {
				continue
			}
			var key, value string
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "key":
					key = a.Value
				case "value":
					value = a.Value
				}
			}
			key, ours := answerName(key)
			if !ours || strings.TrimSpace(value) == "" {
				continue
			}
			if key == "answers" {
				return unbase64(value), nil
			}
			var any any
			if yaml.Unmarshal([]byte(value), &any) != nil {
				any = value
			}
			put(set, strings.Split(key, "."), listed(key, any))
		}
	}
	if _, disk := set["data_disk"]; len(set) == 0 || disk && len(set) == 1 {
		return nil, nil
	}
	return yaml.Marshal(set)
}

// answerName finds the answer that a property gives. Archives of before had the
// prefix twice, in the class and in the key (DSP0243 9.5.1).
func answerName(key string) (name string, ours bool) {
	if name, ours = strings.CutPrefix(key, "saltern."); !ours {
		return "", false
	}
	name = strings.TrimPrefix(name, "saltern.")
	for _, group := range []string{"network", "admin", "storage"} {
		if rest, ok := strings.CutPrefix(name, group+"_"); ok {
			return group + "." + rest, true
		}
	}
	return name, true
}

// listed makes lists of answers that are some: OVF properties are text.
func listed(key string, v any) any {
	s, ok := v.(string)
	if !ok {
		return v
	}
	switch key {
	case "peers", "front", "network.dns", "network.ntp":
		return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	case "admin.ssh_keys":
		return strings.Split(s, ",")
	}
	return s
}

// unbase64 undoes base64 if it is some.
func unbase64(s string) []byte {
	if b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), "")); err == nil {
		return b
	}
	return []byte(s)
}

const guestTakes = 5 * time.Second

// guestInfo asks VMware's hypervisor, with whichever of its tools is there, as
// cloud-init's DataSourceVMware does.
func (p Places) guestInfo(ctx context.Context) ([]byte, error) {
	for _, tool := range p.GuestInfo {
		path, err := exec.LookPath(tool)
		if err != nil {
			continue
		}
		get := func(key string) string {
			argv := []string{path, "info-get guestinfo." + key}
			if strings.HasSuffix(tool, "vmtoolsd") {
				argv = []string{path, "--cmd", "info-get guestinfo." + key}
			}
			out, err := command.Do(ctx, command.Exec{Limit: guestTakes, MaxOutput: 2 * MaxText}, argv...)
			if err != nil { // not on VMware, or nothing was given
				return ""
			}
			return string(bytes.TrimSpace(out))
		}
		if text := get("userdata"); text != "" {
			if enc := get("userdata.encoding"); enc == "base64" || enc == "b64" {
				return unbase64(text), nil
			}
			return []byte(text), nil
		}
		if env := get("ovfEnv"); env != "" {
			return ParseOVF([]byte(env))
		}
		return nil, nil
	}
	return nil, nil
}
