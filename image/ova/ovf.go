package ova

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"text/template"
)

// class is the OVF class of the properties. In the virtual machine a property's name is the class,
// a dot and the property's key (DSP0243 9.5.1): saltern.mode.
const class = "saltern"

// Property is a value that VMware asks for when the archive is deployed. The virtual machine finds
// the values in guestinfo.ovfEnv, see supervisor/userdata.
type Property struct {
	// Key contains no dot, because dots separate class, key and instance. An underscore stands for
	// the dot of a nested answer.
	Key, Label, Description string
	Secret                  bool
	// Value is the default. Choices, if any, are the only allowed values.
	Value   string
	Choices []string
}

// Category is a group of properties under one heading.
type Category struct {
	Title      string
	Properties []Property
}

// categories lists the answers to the set-up that can be given before the first boot. Their keys
// are those of the answers (setup.AnswerKeys), with an underscore instead of the dot. The virtual
// machine parses each value by the type of the answer (userdata/properties.go).
var categories = []Category{
	{"Cluster", []Property{
		{
			Key:   "mode",
			Label: "What this machine becomes",
			Description: "form: the first node of a new cluster. join: a node of a cluster that exists. " +
				"arbiter: joins, keeps no data and serves no minions; with it two nodes go on when one is " +
				"lost. Empty: the console asks.",
			Choices: []string{"", "form", "join", "arbiter"},
		},
		{
			Key:         "cluster_id",
			Label:       "Name of the cluster",
			Description: "For the first node: letters, digits, dot and dash; empty: saltern.",
		},
		{
			Key:         "node",
			Label:       "Name of this machine",
			Description: "Unique in the cluster, and it cannot be changed later; empty: its host name.",
		},
		{
			Key:         "join",
			Label:       "Join string",
			Description: "To join: what a node of the cluster shows as its join string. It stands for the two below.",
			Secret:      true,
		},
		{
			Key:         "peers",
			Label:       "Nodes to join through",
			Description: "To join without a join string: addresses or names of nodes, with commas.",
		},
		{
			Key:   "secret",
			Label: "Secret of the cluster",
			Description: "To join without a join string. For the first node: 16 characters or more; empty: " +
				"one is made.",
			Secret: true,
		},
		{
			Key:         "virtual_address",
			Label:       "Virtual address",
			Description: "For the first node: a free address that moves between the nodes, for minions; empty: none.",
		},
		{
			Key:         "api",
			Label:       "Salt's API",
			Description: "true: this machine serves Salt's API and the console for browsers, on port 8000.",
			Choices:     []string{"", "true", "false"},
		},
	}},
	{"Network", []Property{
		{
			Key:         "network_method",
			Label:       "Addresses",
			Description: "dhcp or static; empty: DHCP.",
			Choices:     []string{"", "dhcp", "static"},
		},
		{
			Key:         "network_address",
			Label:       "Address of this machine",
			Description: "For static: IPv4 or IPv6 with prefix length, as 192.0.2.11/24 or 2001:db8::11/64.",
		},
		{Key: "network_gateway", Label: "Gateway", Description: "For static: the router, of the same family."},
		{Key: "network_dns", Label: "Name servers", Description: "IPv4 or IPv6 addresses, with commas."},
		{
			Key:         "network_search",
			Label:       "Search domains",
			Description: "For names without dots, with commas, as example.org.",
		},
		{
			Key:         "network_ntp",
			Label:       "Time servers",
			Description: "Names or addresses, with commas, beside those of DHCP and Debian's pool.",
		},
		{
			Key:   "network_hostname",
			Label: "Host name",
			Description: "What the machine calls itself in prompts and towards the DHCP server; empty: the " +
				"name of this machine above. When that is empty, this is the name of this machine, too.",
		},
		{
			Key:   "address",
			Label: "Address for the other nodes",
			Description: "Of several addresses the one by which the other nodes reach this machine; empty: " +
				"that of the default route.",
		},
	}},
	{"Administrator", []Property{
		{
			Key:   "admin_ssh_keys",
			Label: "SSH public keys",
			Description: "Of the account admin: lines as in id_ed25519.pub, one behind the other with a " +
				"comma between. SSH takes keys only.",
		},
		{
			Key:         "admin_password",
			Label:       "Password",
			Description: "Of the account admin on the console, 8 to 256 characters.",
			Secret:      true,
		},
	}},
	{"Storage and the rest", []Property{
		{
			Key:   "data_disk",
			Label: "Data disk",
			Description: "Disk for the shared volume: auto (the only empty disk, which this template " +
				"brings), a block device such as /dev/sdb, or empty for the system's disk.",
			Value: "auto",
		},
		{
			Key:         "answers",
			Label:       "All answers",
			Description: "A whole answers file, plain or in base64; stands for all others.",
			Secret:      true,
		},
	}},
}

// Qualifiers returns the OVF qualifier that restricts a property to its choices (DSP0243 9.5.1 and
// the ValueMap of CIM, DSP0004).
func (p Property) Qualifiers() string {
	quoted := make([]string, len(p.Choices))
	for i, c := range p.Choices {
		quoted[i] = `&quot;` + escape(c) + `&quot;`
	}
	return "ValueMap{" + strings.Join(quoted, ",") + "}"
}

// machine holds the values for the descriptor's template.
type machine struct {
	Name               string
	Version            string // version that the programs report
	Release            string // version if it is a release, else ""
	Disk               string // file name of the disk
	DiskSize, Capacity int64
	Populated          int64 // bytes of the disk in grains that are not all zero
	CPUs, MemoryMiB    int
	Categories         []Category
	Class              string
	DataSize           int64 // capacity in bytes of the empty second disk
}

// Annotation returns the note that hypervisors show with the machine.
func (m machine) Annotation() string {
	return "A node of a highly available Salt master, version " + m.Version + ". " +
		"With answers (\"Customize template\") it sets itself up; without, its console asks. " +
		"The second disk is for the cluster's files: make it as large as they need before the first start."
}

// releaseForm matches the version of a release.
var releaseForm = regexp.MustCompile(`^v?[0-9]+(\.[0-9]+){1,3}([-+~.][0-9A-Za-z.+~-]+)?$`)

// releaseOf returns version if it names a release, else "". The version of a program built between
// releases names the commit.
func releaseOf(version string) string {
	if !releaseForm.MatchString(version) {
		return ""
	}
	return version
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // writing to a buffer does not fail
	return strings.ReplaceAll(b.String(), "&#34;", "&quot;")
}

// envelope is the template of an OVF 1.1 descriptor (DMTF DSP0243) with VMware's transport for
// properties. The children of an Item are in alphabetical order, as the CIM schema demands. The
// SCSI controller is LSI Logic, which ESXi, Workstation, Fusion and VirtualBox all import;
// Workstation refuses archives with VMware's own controller. ESXi supports this guest type and
// hardware version 14 from 6.7 on.
var envelope = template.Must(template.New("ovf").Funcs(template.FuncMap{"x": escape}).Parse(`<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData" xmlns:vmw="http://www.vmware.com/schema/ovf">
  <References>
    <File ovf:href="{{x .Disk}}" ovf:id="file1" ovf:size="{{.DiskSize}}"/>
  </References>
  <DiskSection>
    <Info>Virtual disks</Info>
    <Disk ovf:capacity="{{.Capacity}}" ovf:capacityAllocationUnits="byte" ovf:diskId="disk1" ovf:fileRef="file1" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized" ovf:populatedSize="{{.Populated}}"/>
    <Disk ovf:capacity="{{.DataSize}}" ovf:capacityAllocationUnits="byte" ovf:diskId="disk2" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized" ovf:populatedSize="0"/>
  </DiskSection>
  <NetworkSection>
    <Info>Networks</Info>
    <Network ovf:name="Network">
      <Description>Minions, administrators and the other nodes</Description>
    </Network>
  </NetworkSection>
  <VirtualSystem ovf:id="{{x .Name}}">
    <Info>A node of a highly available Salt master</Info>
    <Name>{{x .Name}}</Name>
    <OperatingSystemSection ovf:id="96" vmw:osType="debian10_64Guest">
      <Info>Guest</Info>
      <Description>Debian GNU/Linux 12 (64-bit)</Description>
    </OperatingSystemSection>
    <VirtualHardwareSection ovf:transport="com.vmware.guestInfo">
      <Info>Hardware</Info>
      <System>
        <vssd:ElementName>Virtual Hardware Family</vssd:ElementName>
        <vssd:InstanceID>0</vssd:InstanceID>
        <vssd:VirtualSystemIdentifier>{{x .Name}}</vssd:VirtualSystemIdentifier>
        <vssd:VirtualSystemType>vmx-14</vssd:VirtualSystemType>
      </System>
      <Item>
        <rasd:AllocationUnits>hertz * 10^6</rasd:AllocationUnits>
        <rasd:Description>Processors</rasd:Description>
        <rasd:ElementName>{{.CPUs}} CPU</rasd:ElementName>
        <rasd:InstanceID>1</rasd:InstanceID>
        <rasd:ResourceType>3</rasd:ResourceType>
        <rasd:VirtualQuantity>{{.CPUs}}</rasd:VirtualQuantity>
      </Item>
      <Item>
        <rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits>
        <rasd:Description>Memory</rasd:Description>
        <rasd:ElementName>{{.MemoryMiB}} MB</rasd:ElementName>
        <rasd:InstanceID>2</rasd:InstanceID>
        <rasd:ResourceType>4</rasd:ResourceType>
        <rasd:VirtualQuantity>{{.MemoryMiB}}</rasd:VirtualQuantity>
      </Item>
      <Item>
        <rasd:Address>0</rasd:Address>
        <rasd:Description>SCSI controller</rasd:Description>
        <rasd:ElementName>SCSI 0</rasd:ElementName>
        <rasd:InstanceID>3</rasd:InstanceID>
        <rasd:ResourceSubType>lsilogic</rasd:ResourceSubType>
        <rasd:ResourceType>6</rasd:ResourceType>
      </Item>
      <Item>
        <rasd:AddressOnParent>0</rasd:AddressOnParent>
        <rasd:ElementName>Disk 1</rasd:ElementName>
        <rasd:HostResource>ovf:/disk/disk1</rasd:HostResource>
        <rasd:InstanceID>4</rasd:InstanceID>
        <rasd:Parent>3</rasd:Parent>
        <rasd:ResourceType>17</rasd:ResourceType>
      </Item>
      <Item>
        <rasd:AddressOnParent>1</rasd:AddressOnParent>
        <rasd:ElementName>Disk 2</rasd:ElementName>
        <rasd:HostResource>ovf:/disk/disk2</rasd:HostResource>
        <rasd:InstanceID>6</rasd:InstanceID>
        <rasd:Parent>3</rasd:Parent>
        <rasd:ResourceType>17</rasd:ResourceType>
      </Item>
      <Item>
        <rasd:AddressOnParent>7</rasd:AddressOnParent>
        <rasd:AutomaticAllocation>true</rasd:AutomaticAllocation>
        <rasd:Connection>Network</rasd:Connection>
        <rasd:ElementName>Network adapter 1</rasd:ElementName>
        <rasd:InstanceID>5</rasd:InstanceID>
        <rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType>
        <rasd:ResourceType>10</rasd:ResourceType>
      </Item>
      <vmw:Config ovf:required="false" vmw:key="firmware" vmw:value="efi"/>
    </VirtualHardwareSection>
    <AnnotationSection>
      <Info>Notes</Info>
      <Annotation>{{x .Annotation}}</Annotation>
    </AnnotationSection>
    <ProductSection ovf:class="{{.Class}}">
      <Info>Set-up of the node</Info>
      <Product>Saltern</Product>
      <Vendor>The Saltern authors</Vendor>
{{- if .Release}}
      <Version>{{x .Release}}</Version>
{{- end}}
      <FullVersion>{{x .Version}}</FullVersion>
{{- range .Categories}}
      <Category>{{x .Title}}</Category>
{{- range .Properties}}
      <Property ovf:key="{{.Key}}"{{if .Secret}} ovf:password="true"{{end}}{{if .Choices}} ovf:qualifiers="{{.Qualifiers}}"{{end}} ovf:type="string" ovf:userConfigurable="true" ovf:value="{{x .Value}}">
        <Label>{{x .Label}}</Label>
        <Description>{{x .Description}}</Description>
      </Property>
{{- end}}
{{- end}}
    </ProductSection>
  </VirtualSystem>
</Envelope>
`))

func (m machine) descriptor() ([]byte, error) {
	var b bytes.Buffer
	if err := envelope.Execute(&b, m); err != nil {
		return nil, fmt.Errorf("ova: %w", err)
	}
	return b.Bytes(), nil
}
