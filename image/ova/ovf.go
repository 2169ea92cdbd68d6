package ova

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"text/template"
)

// class is the class of the properties. The guest sees a property as its
// class, a dot and its key (DSP0243 9.5.1): saltern.mode.
const class = "saltern"

// Property is one question that VMware asks when the archive is deployed. The
// guest finds the answers in guestinfo.ovfEnv, see supervisor/userdata.
type Property struct {
	// Key has no dots: they separate class, key and instance. An underscore
	// stands for the dot of a nested answer.
	Key, Label, Description string
	Secret                  bool
	// Value is filled in; Choices, if any, are the only values.
	Value   string
	Choices []string
}

// Category is a group of properties under one heading.
type Category struct {
	Title      string
	Properties []Property
}

// categories are the answers of the set-up that make sense before the first
// boot.
var categories = []Category{
	{"Cluster", []Property{
		{Key: "mode", Label: "Form or join", Description: "form: the first node of a new cluster. join: a node of a cluster that exists. Empty: the console asks.", Choices: []string{"", "form", "join"}},
		{Key: "cluster_id", Label: "Cluster", Description: "Name of the cluster."},
		{Key: "node", Label: "Node", Description: "Name of this machine, unique in the cluster; empty: its host name."},
		{Key: "join", Label: "Join string", Description: "For joining: what a node of the cluster shows as its join string. Stands for peers and secret.", Secret: true},
		{Key: "peers", Label: "Peers", Description: "For joining: addresses of nodes, with commas."},
		{Key: "secret", Label: "Secret", Description: "For joining with peers: the cluster's secret.", Secret: true},
		{Key: "virtual_address", Label: "Virtual address", Description: "An address that moves between the nodes; empty: none."},
	}},
	{"Network", []Property{
		{Key: "network_method", Label: "Network", Description: "dhcp or static; empty: DHCP.", Choices: []string{"", "dhcp", "static"}},
		{Key: "network_address", Label: "Address", Description: "For static: this machine's address with prefix length, as 192.0.2.11/24."},
		{Key: "network_gateway", Label: "Gateway", Description: "For static: the router."},
		{Key: "network_dns", Label: "Name servers", Description: "Addresses, with commas."},
		{Key: "network_ntp", Label: "Time servers", Description: "Names or addresses, with commas, beside those of DHCP and Debian's pool."},
	}},
	{"Administrator", []Property{
		{Key: "admin_ssh_keys", Label: "SSH keys", Description: "Public keys of the account admin, with commas. SSH takes keys only."},
		{Key: "admin_password", Label: "Password", Description: "Password of the account admin on the console, at least 8 characters.", Secret: true},
	}},
	{"Storage and the rest", []Property{
		{Key: "data_disk", Label: "Data disk", Description: "Disk for the shared volume: auto (the only empty disk, which this template brings), a block device such as /dev/sdb, or empty for the system's disk.", Value: "auto"},
		{Key: "answers", Label: "All answers", Description: "A whole answers file, plain or in base64; stands for all others.", Secret: true},
	}},
}

// Qualifiers restricts a property to its choices (DSP0243 9.5.1 and the
// ValueMap of CIM, DSP0004).
func (p Property) Qualifiers() string {
	quoted := make([]string, len(p.Choices))
	for i, c := range p.Choices {
		quoted[i] = `&quot;` + escape(c) + `&quot;`
	}
	return "ValueMap{" + strings.Join(quoted, ",") + "}"
}

// machine is what the template needs.
type machine struct {
	Name, Version      string
	Disk               string // file name
	DiskSize, Capacity int64
	CPUs, MemoryMiB    int
	Categories         []Category
	Class              string
	DataSize           int64 // of the empty second disk
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer does not fail
	return strings.ReplaceAll(b.String(), "&#34;", "&quot;")
}

// envelope is an OVF 1.1 descriptor (DMTF DSP0243) with VMware's transport
// for properties. The children of an Item are in alphabetical order, as the
// CIM schema wants them. The SCSI controller is LSI Logic, which ESXi,
// Workstation, Fusion and VirtualBox all import; Workstation refuses archives
// with VMware's own. Guest and hardware version 14 are known from ESXi 6.7 on.
var envelope = template.Must(template.New("ovf").Funcs(template.FuncMap{"x": escape}).Parse(`<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData" xmlns:vmw="http://www.vmware.com/schema/ovf">
  <References>
    <File ovf:href="{{x .Disk}}" ovf:id="file1" ovf:size="{{.DiskSize}}"/>
  </References>
  <DiskSection>
    <Info>Virtual disks</Info>
    <Disk ovf:capacity="{{.Capacity}}" ovf:capacityAllocationUnits="byte" ovf:diskId="disk1" ovf:fileRef="file1" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
    <Disk ovf:capacity="{{.DataSize}}" ovf:capacityAllocationUnits="byte" ovf:diskId="disk2" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
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
    <ProductSection ovf:class="{{.Class}}">
      <Info>Set-up of the node</Info>
      <Product>Saltern</Product>
      <Vendor>The Saltern authors</Vendor>
      <Version>{{x .Version}}</Version>
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
