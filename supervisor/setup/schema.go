package setup

import (
	"reflect"
	"slices"
	"strings"

	"saltern/supervisor/settings"
)

// Schema returns the JSON Schema (draft 2020-12) of a file of answers, for editors and for programs
// that write such files. It does not describe which answers exclude each other: only [Validate]
// checks that.
func Schema() map[string]any {
	s := schemaOf(reflect.TypeFor[Answers](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "answers for the set-up of a Saltern node"
	s["anyOf"] = []any{map[string]any{"required": []string{"mode"}}, map[string]any{"required": []string{"join"}}}
	return s
}

// words holds a description of each answer, by the answer's key.
var words = map[string]string{
	"mode": "form: the first node of a new cluster; join: a node of one that exists; " +
		"arbiter: joins as the arbiter of two nodes, and keeps no data",
	"cluster_id": "name of the cluster",
	"node": "name of this machine; default: its host name, " +
		"on the image salt- and the end of its MAC address",
	"address":         "IP address for the other nodes; default: that of the default route, else the only one",
	"front":           "addresses for minions; default: all",
	"peers":           "nodes to join through",
	"secret":          "of the cluster; 16 to 128 characters that nobody guesses",
	"join":            "join string as printed by applianced join-string",
	"data_disk":       "block device for the copy of the shared volume",
	"erase_data_disk": "the data disk may hold something; it is erased",
	"virtual_address": "an address that moves between the nodes",
	"api":             "this node serves Salt's API over HTTP",
	"settings":        "further keys of appliance.yaml",
	"admin.ssh_keys":  "public keys that may log in as admin",
	"admin.password":  "of the account admin",
	"network.address": "with prefix length",
	"storage.tls":     "the connections of a new cluster's volume are encrypted; default: yes",
	"storage.role": "of a machine that joins. data: it serves minions, and keeps a copy if one is needed; " +
		"arbiter: it keeps no data, serves nobody, and lets two nodes go on when one is lost",
	"storage.path": "the directory that all nodes share, for kind directory",
}

// choices lists the possible values of answers that accept only a few words, by the answer's key.
var choices = map[string][]string{
	"mode": {string(Form), string(Join), string(JoinAsArbiter)}, "network.method": {"dhcp", "static"},
	"storage.kind": {settings.VolumeStorage, settings.DirectoryStorage, settings.LocalStorage},
	"storage.role": {RoleData, RoleArbiter},
}

func schemaOf(t reflect.Type, prefix string) map[string]any {
	properties := map[string]any{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		key := prefix + name
		var p map[string]any
		switch f.Type.Kind() {
		case reflect.Struct:
			p = schemaOf(f.Type, key+".")
		case reflect.Slice:
			p = map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
		case reflect.Bool, reflect.Pointer:
			p = map[string]any{"type": "boolean"}
		case reflect.Map:
			p = map[string]any{"type": "object"}
		default:
			p = map[string]any{"type": "string"}
		}

		if w := words[key]; w != "" {
			p["description"] = w
		}

		if c := choices[key]; c != nil {
			p["enum"] = slices.Clone(c)
		}

		properties[name] = p
	}

	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// Anywhere returns the facts of an imagined machine that has every disk, interface and address that
// the answers name. With them [Validate] can check answers for another machine.
func Anywhere(a Answers) Facts {
	address := "192.0.2.1/32" // a network of one address, because no other address is known
	if a.Address != "" {
		address = a.Address + "/32"
	} else if strings.Contains(a.Virtual, ":") {
		address = "2001:db8::1/128"
	}

	f := Facts{
		Hostname:   "node",
		Managed:    true,
		Volume:     true,
		Interfaces: []Interface{{Name: a.Network.Interface, Default: true, Addresses: []string{address}}},
	}

	switch a.DataDisk {
	case "":
	case autoDisk:
		f.Disks = []Disk{{Path: "/dev/sdb", Empty: true}}
	default:
		f.Disks = []Disk{{Path: a.DataDisk, Empty: true}}
	}

	return f
}
