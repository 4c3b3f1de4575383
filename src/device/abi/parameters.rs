//! The parameter structure of a call, for any family.

use super::{Address, Fields, Header, Structure};
use std::{any::Any, fmt};

/// Scalar parameters of a launcher, in a family's own type.
pub trait Parameters: Clone + PartialEq + fmt::Debug + 'static {
    /// The structure of `kgen.h` after `struct_size`, field by field.
    fn fields(&self) -> Fields;
}

impl Parameters for Fields {
    fn fields(&self) -> Fields {
        self.clone()
    }
}

/// [`Parameters`] with the type erased.
trait Erased: Any + fmt::Debug {
    fn fields(&self) -> Fields;
    fn boxed(&self) -> Box<dyn Erased>;
    fn equals(&self, other: &dyn Erased) -> bool;
}

impl<P: Parameters> Erased for P {
    fn fields(&self) -> Fields {
        Parameters::fields(self)
    }

    fn boxed(&self) -> Box<dyn Erased> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Erased) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref() == Some(self)
    }
}

/// The parameters of a call: those of a family, and the header of the structure.
pub struct Params {
    of_family: Box<dyn Erased>,
    header: Option<Header>,
}

impl Params {
    /// These parameters, with the header that `kgen.h` prescribes.
    pub fn of(parameters: impl Parameters) -> Self {
        Self { of_family: Box::new(parameters), header: None }
    }

    /// These parameters with the header of a caller that violates `kgen.h`, or that was compiled against another
    /// version.
    #[must_use]
    pub fn headed(self, header: Header) -> Self {
        Self { header: Some(header), ..self }
    }

    /// The parameters, if they are of this type.
    pub fn get<P: Parameters>(&self) -> Option<&P> {
        let parameters: &dyn Any = &*self.of_family;
        parameters.downcast_ref()
    }

    /// The mutable parameters, if they are of this type.
    pub fn get_mut<P: Parameters>(&mut self) -> Option<&mut P> {
        let parameters: &mut dyn Any = &mut *self.of_family;
        parameters.downcast_mut()
    }

    /// The structure to pass, with pointers from `address` for the tensors.
    pub(in crate::device) fn structure(&self, address: Address<'_>, workspace_bytes: usize) -> Structure {
        let structure = || self.of_family.fields().structure(address, workspace_bytes);
        Structure(match self.header {
            Some(Header::Null) => None,
            Some(header) => Some(structure().headed(header)),
            None => Some(structure()),
        })
    }
}

impl Clone for Params {
    fn clone(&self) -> Self {
        Self { of_family: self.of_family.boxed(), header: self.header }
    }
}

impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header && self.of_family.equals(&*other.of_family)
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Params").field(&self.of_family).field(&self.header).finish()
    }
}
