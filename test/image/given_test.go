//go:build boot

package image

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
)

// packed is a MIME message with a script and a #cloud-config, packed with gzip, as
// Terraform's cloudinit_config makes it without options.
func packed(t *testing.T, config string) string {
	t.Helper()
	const boundary = "MIMEBOUNDARY"
	message := "Content-Type: multipart/mixed; boundary=\"" + boundary + "\"\nMIME-Version: 1.0\n\n" +
		"--" + boundary + "\nContent-Type: text/x-shellscript\n\n#!/bin/sh\ntouch /run/never\n" +
		"--" + boundary + "\nContent-Type: text/cloud-config\n\n" + config + "\n--" + boundary + "--\n"
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(message)); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return b.String()
}

// propertiesOf is an OVF environment.
func propertiesOf(values map[string]string) string {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" xmlns:oe="http://schemas.dmtf.org/ovf/environment/1"><PropertySection>`)
	for key, value := range values {
		fmt.Fprintf(&b, `<Property oe:key="saltern.%s" oe:value="`, key)
		_ = xml.EscapeText(&b, []byte(value)) // a buffer does not fail
		b.WriteString(`"/>`)
	}
	b.WriteString(`</PropertySection></Environment>`)
	return b.String()
}

// TestGivenByProperties: beside user-data that is for others an OVF environment on
// a disk sets the machine up, every value as it was typed. A rule of the
// administrator's own that is wrong leaves the firewall up.
func TestGivenByProperties(t *testing.T) {
	const secret, password = "#7Kestrel-Marble-oxide-42", "Summer #2024!: ~"
	v := newVM(t, vmOptions{number: 60, disks: func(public string) map[string]map[string]string {
		return map[string]map[string]string{
			"CIDATA": {
				"user-data":      packed(t, "#cloud-config\nusers: []\n"),
				"meta-data":      "instance-id: i-1\n",
				"network-config": "version: 2\n",
			},
			"OVF ENV": {"ovf-env.xml": propertiesOf(map[string]string{
				"mode": "form", "cluster_id": "0042", "node": "0010", "secret": secret, "storage_kind": "local",
				"admin_ssh_keys": public +
					" Doe, Jane # work: laptop", "admin_password": password, "api": "True", "data_disk": "",
			})},
		}
	}})

	v.start(t)
	v.wait(t, "HEALTHY", "applianced status")

	for command, want := range map[string]string{
		"sudo cat /etc/saltern/appliance.yaml":                                           "node: \"0010\"",
		"sudo grep ^cluster: /etc/saltern/appliance.yaml":                                "\"0042\"",
		"sudo cat /var/lib/saltern/node/secret":                                          secret,
		"cat ~/.ssh/authorized_keys":                                                     "Doe, Jane # work: laptop",
		`printf '%s\0' '` + password + `' | sudo unix_chkpwd admin nonull && echo right`: "right",
		"journalctl -u applianced --no-pager | grep 'is not used'":                       "(gzip, MIME, 2 parts)",
		"ls /run/saltern-seed; [ ! -e /run/never ] && echo 'nothing was run'":            "nothing was run",
		"hostname; cat /etc/hostname":                                                    "0010\n0010",
		"sudo touch /srv/salt/x.sls && sudo ls /var/lib/saltern/cluster/srv/salt":        "x.sls",
	} {
		if out := v.run(t, command); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in %s", command, want, out)
		}
	}

	v.wait(t, "up", "timeout 5 bash -c ': </dev/tcp/127.0.0.1/8000' && echo up")

	v.run(t, `echo 'tcp dport 9100 ip saddr monitor.example.org acept' | sudo tee /etc/nftables.d/10-own.nft`)
	v.away("sudo systemctl reboot")
	v.wait(t, "serving", "uptime -s; applianced status | tr A-Z a-z")
	if out := v.run(t, "sudo nft list tables; applianced status || true"); !strings.Contains(out, "inet saltern") {
		t.Errorf("a wrong rule of one's own took the firewall away: %s", out)
	}

	v.wait(t, "SCA-508", "applianced status || true")
	if out := v.run(t, "applianced status || true"); !strings.Contains(out, "10-own.nft") ||
		!strings.Contains(out, "line 1") || strings.Contains(out, "SCA-507") {
		t.Errorf("the wrong rule is not named, or the firewall is said to be another: %s", out)
	}

	v.wait(t, `"at"`, "cat /run/saltern-guards/system.json")
	looked := v.run(t, "cat /run/saltern-guards/system.json")
	t.Log("what guards the machine: ", looked)
	for _, code := range []string{"SCA-509", "SCA-510", "SCA-608"} {
		if strings.Contains(looked, code) {
			t.Errorf("a new machine has %s: %s", code, looked)
		}
	}
}

// TestGivenPacked: user-data that is packed sets the machine up (F6).
func TestGivenPacked(t *testing.T) {
	v := newVM(t, vmOptions{number: 61, disks: func(public string) map[string]map[string]string {
		config := "#cloud-config\nsaltern:\n  mode: form\n  storage: {kind: local}\n  admin: {ssh_keys: [" +
			public + "]}\n"
		return map[string]map[string]string{"cidata": {
			"user-data": packed(t, config),
			"meta-data": "instance-id: i-1\nlocal-hostname: salt-7\n",
		}}
	}})
	v.start(t)
	v.wait(t, "HEALTHY", "applianced status")
	if out := v.run(t, "sudo cat /etc/saltern/appliance.yaml"); !strings.Contains(out, "node: salt-7") {
		t.Errorf("%s", out)
	}
}
